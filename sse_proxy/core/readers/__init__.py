"""The readers that are shipped or met, told again in Python, for the matrix, `sse-proxy read` and the tests.

Each is fed packet by packet, as the program's own read loop is; where a packet's cut changes what the program does, it
changes it here too. They are programs of other people: their faults are kept, and named in the docstrings. The clients'
names and behaviour are those of GuitarAlchemist/ga at a826864.

    reader = GaClientChatService()
    for packet in packets:
        reader.feed(packet)
    reader.close()                      # or fail(), where the connection broke
    reader.answer, reader.error, reader.stored
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sse_proxy.core.readers.clients import AgUiClient, DesktopApp, GaClientChatService, GaClientStreamChat
from sse_proxy.core.readers.pages import GaChatbotPage, HtmlStandardReader, NaivePacketReader
from sse_proxy.core.readers.reader import ChatReader

__all__ = [
    "READERS",
    "AgUiClient",
    "ChatReader",
    "DesktopApp",
    "GaChatbotPage",
    "GaClientChatService",
    "GaClientStreamChat",
    "HtmlStandardReader",
    "NaivePacketReader",
    "read_all",
]

READERS: Mapping[str, Callable[[], ChatReader]] = {
    HtmlStandardReader.name: HtmlStandardReader,
    GaChatbotPage.name: GaChatbotPage,
    GaClientChatService.name: GaClientChatService,
    GaClientStreamChat.name: GaClientStreamChat,
    AgUiClient.name: AgUiClient,
    DesktopApp.name: DesktopApp,
    NaivePacketReader.name: NaivePacketReader,
}
"""Every reader by its name, in the order of tables."""


def read_all(reader: ChatReader, packets: Iterable[bytes]) -> ChatReader:
    """Feed `packets` to `reader`, then end the stream cleanly; return the reader."""
    for packet in packets:
        reader.feed(packet)
    reader.close()
    return reader
