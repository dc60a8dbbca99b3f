"""Chats with a language model: prompts from templates, draws of tokens, conversations."""
