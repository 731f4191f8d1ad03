"""Tokenizer and detokenizer of the lab: framing that text cannot forge, text that is not repaired.

``Tokenizer.encode`` gives IDs with byte spans that partition the source; ``StreamDecoder`` turns
generated IDs into text that only grows. Nothing here imports torch.
"""

from flashrt.lab.tokenizer.stream import Fault, Rendered, StreamDecoder
from flashrt.lab.tokenizer.tokenizer import CODEC_VERSION, Tokenizer, source_sha256
from flashrt.lab.tokenizer.turn import ROLES, Role, Turn
from flashrt.lab.tokenizer.vocabulary import TAGS, TURN_END, Vocabulary

__all__ = [
    "CODEC_VERSION",
    "ROLES",
    "TAGS",
    "TURN_END",
    "Fault",
    "Rendered",
    "Role",
    "StreamDecoder",
    "Tokenizer",
    "Turn",
    "Vocabulary",
    "source_sha256",
]
