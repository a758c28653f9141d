"""A page whose script uses what a browser can do with HTTP/1.1, and the server that it needs:
content sent by fetch, server-sent events, and a WebSocket (RFC 6455) that echoes. An image that
comes when the script is done keeps the page from being complete before.
Arguments: the port to listen on."""

import base64
import hashlib
import http.server
import struct
import sys
import threading

PAGE = b"""<!doctype html><p id=p>waiting</p><img src=/done><script>
const posted = async () => {
  const reply = await fetch("/length", {method: "POST", body: new Uint8Array(3000000)});
  return reply.text();
};
const events = () => new Promise(resolve => {
  let count = 0;
  const source = new EventSource("/events");
  source.onmessage = () => { if (++count === 3) { source.close(); resolve(count); } };
});
const echoed = () => new Promise(resolve => {
  let same = 0;
  const socket = new WebSocket(`ws://${location.host}/echo`);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => {
    for (let n = 0; n < 3; n++) socket.send(new Uint8Array(1 << 20).fill(n));
  };
  socket.onmessage = ({data}) => {
    const bytes = new Uint8Array(data);
    same += bytes.length === 1 << 20 && bytes.every(byte => byte === same);
    if (same === 3) socket.close(1000);
  };
  socket.onclose = event => resolve(`${same} ${event.wasClean}`);
});
const all = Promise.all([posted(), events(), echoed()]);
all.then(results => {
  p.textContent = "saw " + results.join(", ");
  return fetch("/done", {method: "POST", body: "x"});
});
</script>"""

DONE = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, kind, content):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer("text/plain", str(len(content)).encode())
        if self.path == "/done":
            DONE.set()

    def do_GET(self):
        if self.path == "/events":
            self.answer("text/event-stream", b"data: x\n\n" * 3)
        elif self.path == "/echo":
            self.echo()
        elif self.path == "/done":
            DONE.wait(20)
            self.answer("image/gif", b"")
        else:
            self.answer("text/html", PAGE)

    def echo(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.close_connection = True
        while True:
            first, second = self.rfile.read(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack(">H", self.rfile.read(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self.rfile.read(8))
            mask = self.rfile.read(4) * (length // 4 + 1)
            masked = int.from_bytes(self.rfile.read(length), "big")
            content = (masked ^ int.from_bytes(mask[:length], "big")).to_bytes(length, "big")
            head = bytes([first])
            if length < 126:
                head += bytes([length])
            elif length < 1 << 16:
                head += struct.pack(">BH", 126, length)
            else:
                head += struct.pack(">BQ", 127, length)
            self.wfile.write(head + content)
            if first & 0x0F == 8:
                return

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
