"""Sentences of errors and warnings that the tests of llm expect, as patterns."""

IS_NO_GGUF_FILE_EXPECTED_ONE = "is not a GGUF file; expected one, or a folder"
MODEL_ARGS_HAS_DTYPE_EXPECTED_PATH = "model_args has 'dtype', expected path, format"
MODEL_ARGS_NEEDS_PATH = "model_args needs path"
PIP_INSTALL_HETEROCOMPUTE_LLM = r"pip install 'heterocompute\[llm\]'"
THE_PACKAGE_TOKENIZERS_DOES_NOT_READ = "the package tokenizers does not read it"
