"""The pure core: bytes of a broken stream in, bytes of a right one out. No sockets, no clocks, no logging.

The stages, and what each promises:

    bytes -> Utf8Decoder   text; one BOM gone, invalid sequences replaced, wherever the bytes are cut
          -> StreamHead    is this an event stream at all? comments before the first event taken off
          -> a dialect     frames: events, pieces of text, ends of frames; how the host's framing is read
          -> Answer        control events told from answer text; text joined, normalised to LF
             -> Cutter     re-split at sentence ends; no chunk can be mistaken for a control event
          -> Encoder       one `data:` line for each line of text
          -> bytes         whole events only

`Pipeline` puts them together; everything depends on the bytes alone, never on where they were cut.

Where we differ from the HTML standard, and why: the dialects other than `standard` read what hosts write, not what the
standard says of it. The output always follows the standard, but that `reader: ga-client` sends LF as CR, for clients
that take one line of an event only.
"""

from sse_proxy.core.ledger import Ledger, Outcome, RepairKind
from sse_proxy.core.options import Chunker, Dialect, Payload, Reader, Split, StreamOptions
from sse_proxy.core.pipeline import Pipeline

__all__ = [
    "Chunker",
    "Dialect",
    "Ledger",
    "Outcome",
    "Payload",
    "Pipeline",
    "Reader",
    "RepairKind",
    "Split",
    "StreamOptions",
]
