"""An ASGI application: answers with the method, the path and the length of the content."""


async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    length, more = 0, True
    while more:
        message = await receive()
        length += len(message.get("body", b""))
        more = message.get("more_body", False)
    text = f"{scope['method']} {scope['path']} {length}".encode()
    fields = []
    if scope["path"] != "/stream":
        fields.append((b"content-length", str(len(text)).encode()))
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    if scope["path"] == "/stream":
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b"line\n", "more_body": True})
        text = b""
    await send({"type": "http.response.body", "body": text})
