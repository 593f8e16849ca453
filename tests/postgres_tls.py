"""TLS in front of a PostgreSQL server that was built without it.

The client's request for TLS is answered here (https://www.postgresql.org/docs/current/protocol-flow.html),
and what comes out of the tunnel goes on to the server's socket. The key protects nothing: it is the tests'.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBlTCCATugAwIBAgIUXgeAkzllfgNlNJqdSH2lnEf9b+swCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyODA5NDMzOFoYDzIxMjYxMTA0
MDk0MzM4WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQ13LqbbPPC7RmdUKZQi2/6B2ixjlElRQN9+uG3ZhY1SMV7y7UBDcvN
u/WPzEdLAoX2QqrGx1TFwKw0gNi3QNSmo2kwZzAdBgNVHQ4EFgQUEmoNFRYuu5ZR
GVhkCVOfb/CWbMwwHwYDVR0jBBgwFoAUEmoNFRYuu5ZRGVhkCVOfb/CWbMwwFAYD
VR0RBA0wC4IJbG9jYWxob3N0MA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwID
SAAwRQIgFiTmoM8jfe2uRNmj+gK4YC/UzS0t1BC8bvbHtiUkN7cCIQDTKo9qZ3IN
6YNTGOTWCvAy6goFh1ZEwk+Xwh5iShM0gw==
-----END CERTIFICATE-----
"""
OTHER_CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBdjCCAR2gAwIBAgIUCra8XHsHoHmNmdVXL2vqcJUKOcIwCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFb3RoZXIwIBcNMjYxMTI4MDk0NzM4WhgPMjEyNjExMDQwOTQ3
MzhaMBAxDjAMBgNVBAMMBW90aGVyMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
+rAYQ8JzF3qqDHoiVaWa+BG5FxADMAm/XdDSeXs4EcTtqgRq0mGGcmYBhV9xb+Fh
+gI8Bc8M40AvPLwXEtadvqNTMFEwHQYDVR0OBBYEFGTt88KMewmjqmH2ROy4GH6j
hFPNMB8GA1UdIwQYMBaAFGTt88KMewmjqmH2ROy4GH6jhFPNMA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgL14KWxoyHbvMmNleRveDYjYDJjlIL3d4
Y/um7kBJwVkCICW9iTPukblWmgZDUhhvjRtPatCjQVsGV73f4cl9kFPa
-----END CERTIFICATE-----
"""
_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgENfzMUd8GKXcTM63
tLtPUiGJaob4KrPewwRO/nfhjBihRANCAAQ13LqbbPPC7RmdUKZQi2/6B2ixjlEl
RQN9+uG3ZhY1SMV7y7UBDcvNu/WPzEdLAoX2QqrGx1TFwKw0gNi3QNSm
-----END PRIVATE KEY-----
"""
_REQUEST = bytes.fromhex("0000000804d2162f")


@asynccontextmanager
async def tls_in_front_of(socket: Path, folder: Path) -> AsyncIterator[int]:
    """The port of 127.0.0.1 where TLS leads to the socket, by a certificate for `localhost`."""
    (folder / "both.pem").write_text(CERTIFICATE + _KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(len(_REQUEST)) == _REQUEST
        writer.write(b"S")
        await writer.start_tls(context)
        await _joined(reader, writer, socket)

    async with _served(serve) as port:
        yield port


@asynccontextmanager
async def plain_in_front_of(socket: Path) -> AsyncIterator[int]:
    """A port of 127.0.0.1 that leads to the server as it is."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _joined(reader, writer, socket)

    async with _served(serve) as port:
        yield port


@asynccontextmanager
async def _served(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """The port where this serves; all that it began is through when the block ends."""
    tasks: list[asyncio.Task[None]] = []

    async def to_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # the client went away, or does not trust the certificate
            await serve(reader, writer)
        await _closed(writer)

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.create_task(to_the_end(reader, writer)))

    server = await asyncio.start_server(begin, "127.0.0.1")
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*tasks)


async def _joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, socket: Path) -> None:
    behind, there = await asyncio.open_unix_connection(str(socket))
    try:
        await asyncio.gather(_pass_on(reader, there), _pass_on(behind, writer))
    finally:
        await _closed(there)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
