"""A WSGI application: answers with the method, the path and the length of the content."""


def application(environ, start_response):
    length, content = 0, environ["wsgi.input"]
    while piece := content.read(1 << 16):
        length += len(piece)
    text = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {length}"
    if environ["PATH_INFO"] == "/stream":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return (b"line\n" for _ in range(1000))
    start_response("200 OK", [("Content-Length", str(len(text)))])
    return [text.encode()]
