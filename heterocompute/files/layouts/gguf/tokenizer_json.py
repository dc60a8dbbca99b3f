"""The tokenizer of a folder that is made of a GGUF file: tokenizer.json and tokenizer_config.json.

Byte-level BPE alone: its merges, rule of words and added tokens are those of the file. Both tokenizers then give the
same tokens, because `checked` refuses overlaps of added tokens, which the two programs resolve differently.
"""

from __future__ import annotations

import json
from typing import Any

from ....zoo.llm.gguf_tokens import byte_level
from ...containers.gguf_files import Gguf
from .vocabulary import check_overlaps

TEMPLATE = "tokenizer.chat_template"
NAMES = {"bos": "bos_token", "eos": "eos_token", "padding": "pad_token", "unknown": "unk_token"}


def tokenizer_files(reader: Gguf, rows: int) -> dict[str, str]:
    """Return the contents of the files by name.

    Parameters
    ----------
    rows : int
        Of the embedding.

    Raises
    ------
    ValueError
        The vocabulary is of another kind, or no tokenizer.json gives the same tokens.
    """
    found = byte_level(reader.path, reader.metadata, reader.listed, rows)
    check_overlaps(dict.fromkeys(found.added, False))
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    config |= {key: found.texts[i] for name, key in NAMES.items() if (i := found.numbers.get(name)) is not None}
    if template := reader.metadata.get(TEMPLATE):
        config["chat_template"] = template
    return {"tokenizer.json": found.made, "tokenizer_config.json": json.dumps(config, indent=2, ensure_ascii=False)}
