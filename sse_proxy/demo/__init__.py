"""The embedded legacy host: GaApi and GaChatbot.Api as they behave on the wire, with their faults, and more on request.

`wire` writes their bytes, `library` holds the answers, `agui` their AG-UI stream; `knobs` reads what a request asks to
go wrong and `body` makes it go wrong; `messages` and `connection` are the small server under it, `host` is the host.
`page.html` shows one answer read directly and through the proxy, `reader` and `once` do the same in a terminal.
"""
