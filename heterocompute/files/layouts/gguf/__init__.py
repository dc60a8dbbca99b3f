"""GGUF: blocks of weights as llama.cpp stores them, keys of the header, and models for llama.cpp."""
