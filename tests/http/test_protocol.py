"""HTTP itself, in raw bytes."""

import json
import socket
import time

import pytest

from conftest import script, within

BODY = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}).encode()


def read_exactly(sock, count):
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        assert part, "the connection ended inside a body"
        data += part
    return data


def read_line(sock):
    line = b""
    while not line.endswith(b"\r\n"):
        line += read_exactly(sock, 1)
    return line


def read_response(sock):
    """Status, headers and body of the next response, not a byte of what follows it; None at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = sock.recv(1)
        if not part:
            return None
        data += part
    lines = data.decode("latin-1").split("\r\n")
    status = int(lines[0].split()[1])
    headers = {line.split(":", 1)[0].lower(): line.split(":", 1)[1].strip() for line in lines[1:] if ":" in line}
    body = b""
    if status == 100:
        return status, headers, body
    if headers.get("transfer-encoding") == "chunked":
        while (size := int(read_line(sock), 16)) > 0:
            body += read_exactly(sock, size)
            assert read_line(sock) == b"\r\n"
        read_line(sock)
    elif "content-length" in headers:
        body = read_exactly(sock, int(headers["content-length"]))
    else:
        while part := sock.recv(65536):
            body += part
    return status, headers, body


def post(body=BODY, extra="", version="1.1", path="/v1/chat/completions"):
    return (f"POST {path} HTTP/{version}\r\nHost: x\r\nContent-Type: application/json\r\n{extra}"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def chunked(body, size):
    parts = [body[i:i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_B135_chunked_bodies_work(fake, size):
    with fake.connect() as sock:
        sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(BODY, size) + b"0\r\nX-Trailer: 1\r\n\r\n")
        status, _, body = read_response(sock)
        assert status == 200 and json.loads(body)["choices"][0]["message"]["content"] == "The"
        sock.sendall(post())
        assert read_response(sock)[0] == 200


def test_B135_bad_chunk_size_is_400(fake):
    with fake.connect() as sock:
        sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n0\r\n\r\n")
        assert read_response(sock)[0] == 400


def test_B135_expect_continue_is_answered_at_once(fake):
    with fake.connect() as sock:
        sock.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY))
        begin = time.monotonic()
        assert read_response(sock)[0] == 100
        assert time.monotonic() - begin < within(1)
        sock.sendall(BODY)
        assert read_response(sock)[0] == 200
    with fake.connect() as sock:
        sock.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 999999999\r\n\r\n")
        assert read_response(sock)[0] == 413
    with fake.connect() as sock:
        sock.sendall(HEAD + b"Expect: the-moon\r\nContent-Length: %d\r\n\r\n" % len(BODY))
        assert read_response(sock)[0] == 417


def test_B135_http10_gets_an_answer_that_ends_with_the_connection(fake):
    with fake.connect() as sock:
        sock.sendall(post(version="1.0"))
        status, headers, body = read_response(sock)
        assert status == 200 and json.loads(body)["object"] == "chat.completion" and headers["connection"] == "close"
        assert sock.recv(1) == b""
    with fake.connect() as sock:
        sock.sendall(post(BODY[:-1] + b',"stream":true}', version="1.0"))
        status, headers, body = read_response(sock)
        assert "transfer-encoding" not in headers and body.endswith(b"data: [DONE]\n\n")


def test_B136_one_connection_serves_many_requests(fake):
    with fake.connect() as sock:
        for i in range(500):
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_response(sock)[0] == 200
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        status, headers, _ = read_response(sock)
        assert status == 200 and headers["connection"] == "close"
        assert sock.recv(1) == b""


def test_B136_pipelined_requests_are_answered_in_order(fake):
    with fake.connect() as sock:
        bodies = [json.dumps({"prompt": "x" * i, "max_tokens": 1}).encode() for i in range(1, 11)]
        sock.sendall(b"".join(post(body, path="/v1/completions") for body in bodies))
        assert [json.loads(read_response(sock)[2])["usage"]["prompt_tokens"] for _ in bodies] == list(range(1, 11))


def test_pipelined_request_behind_a_stream_is_answered_after_it(fake):
    with fake.connect() as sock:
        sock.sendall(post(BODY[:-1] + b',"stream":true}') + b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_response(sock)[2].endswith(b"data: [DONE]\n\n")
        assert "version" in json.loads(read_response(sock)[2])


def test_B136_idle_connections_are_closed_cleanly_after_the_limit(start):
    server = start(idle_limit_ms=300)
    with server.connect() as sock:
        sock.sendall(post())
        assert read_response(sock)[0] == 200
        begin = time.monotonic()
        assert sock.recv(1) == b""
        assert time.monotonic() - begin > 0.25


def test_B133_too_large_bodies_are_refused_unread(fake):
    for head in (b"Content-Length: 104857600\r\n\r\n", b"Content-Length: 10737418240\r\n\r\n0123456789"):
        with fake.connect() as sock:
            sock.sendall(HEAD + head)
            status, headers, body = read_response(sock)
            assert status == 413 and headers["connection"] == "close" and json.loads(body)["error"]["code"] == "body_too_large"
    with fake.connect() as sock:
        sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        sent = 0
        try:
            while sent < 100 and not select_readable(sock):
                sock.sendall(piece)
                sent += 1
        except OSError:
            pass
        assert sent < 100
        assert read_response(sock)[0] == 413
    fake.check_idle()


def select_readable(sock):
    import select
    return bool(select.select([sock], [], [], 0)[0])


def test_B133_contradicting_lengths_are_refused(fake):
    with fake.connect() as sock:
        sock.sendall(HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n123456")
        assert read_response(sock)[0] == 400
    with fake.connect() as sock:
        sock.sendall(HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        assert read_response(sock)[0] == 400
    with fake.connect() as sock:  # shorter than the body: the rest is no request
        sock.sendall(HEAD + b"Content-Length: 5\r\n\r\n" + BODY)
        sock.sendall(b"\r\n\r\n")
        assert read_response(sock)[0] == 400
        assert read_response(sock)[0] == 400


def test_bodies_of_all_connections_share_a_budget(start):
    server = start(max_body_bytes_total=1000000)
    sockets = [server.connect() for _ in range(2)]
    for sock in sockets:
        sock.sendall(HEAD + b"Content-Length: 600000\r\n\r\n")
    statuses = []
    for sock in sockets:
        sock.settimeout(0.5)
        try:
            statuses.append(read_response(sock)[0])
        except TimeoutError:
            statuses.append(None)
        sock.close()
    assert sorted(statuses, key=str) == [503, None]
    server.check_idle()


@pytest.mark.parametrize("request_bytes", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"HELLO\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                                           b"GET / HTTP/1.1\r\nBad Header\r\n\r\n", b"GET / HTTP/1.1\r\nX: a\x00b\r\n\r\n"])
def test_what_is_not_http_is_refused(fake, request_bytes):
    with fake.connect() as sock:
        sock.sendall(request_bytes)
        response = read_response(sock)
        assert response is None or response[0] in (400, 505)
    fake.check_idle()


@pytest.mark.parametrize("hosts", ["", "Host: a\r\nHost: b\r\n"])
def test_a_request_has_one_host(fake, hosts):
    with fake.connect() as sock:
        sock.sendall(f"GET /health HTTP/1.1\r\n{hosts}\r\n".encode())
        assert read_response(sock)[0] == 400
        assert read_response(sock) is None
    with fake.connect() as sock:
        sock.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert read_response(sock)[0] == 200


@pytest.mark.parametrize("coding", ["gzip", "gzip, chunked", "identity", "chunked, gzip", "chunked\r\nTransfer-Encoding: chunked"])
def test_a_body_of_unknown_coding_is_refused_and_nothing_behind_it_is_read(fake, coding):
    """Else the body would be taken for the next request."""
    with fake.connect() as sock:
        sock.sendall(HEAD + f"Transfer-Encoding: {coding}\r\n\r\n".encode() + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_response(sock)[0] in (400, 501)
        assert read_response(sock) is None


def test_a_client_that_leaves_behind_a_full_read_ahead_is_noticed(start):
    server = start(slots=1)
    body = json.dumps({"messages": [{"role": "user", "content": script(say="word " * 5000, delay_ms=50)}], "max_tokens": 5000}).encode()
    sock = server.connect()
    sock.sendall(post(body))
    sock.sendall(b"G" * 70_000)
    server.wait_for("vllm:num_requests_running", 1)
    sock.close()
    server.wait_for("vllm:num_requests_running", 0, seconds=10)
    server.check_idle()


def test_an_encoded_body_is_415(fake):
    with fake.connect() as sock:
        sock.sendall(post(extra="Content-Encoding: gzip\r\n"))
        status, _, body = read_response(sock)
        assert status == 415 and "gzip" in json.loads(body)["error"]["message"]
    with fake.connect() as sock:
        sock.sendall(post(extra="Content-Encoding: identity\r\n"))
        assert read_response(sock)[0] == 200


def test_a_target_may_be_absolute(fake):
    with fake.connect() as sock:
        sock.sendall(b"GET http://x/health?a=b HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_response(sock)[0] == 200


def test_an_empty_line_before_a_request_is_skipped(fake):
    with fake.connect() as sock:
        sock.sendall(b"\r\n" + post() + b"\r\n" + post())
        assert read_response(sock)[0] == 200
        assert read_response(sock)[0] == 200


def test_B131_odd_bytes_in_url_and_header(fake):
    for target, header in ((b"/\xff\xfe", b"a"), (b"/v1/models/\xff", b"a"), (b"/v1/models/%ff%00", b"a"), (b"/health?\xff", b"a"), (b"/health", b"\xff\xfe")):
        with fake.connect() as sock:
            sock.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nX-Odd: " + header + b"\r\n\r\n")
            status, _, body = read_response(sock)
            assert status in (200, 400, 404)
            body.decode("utf-8")


def test_large_headers_are_431(fake):
    with fake.connect() as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 20000 + b"\r\n\r\n")
        assert read_response(sock)[0] == 431


def test_B138_slow_senders_are_closed_with_408(start):
    server = start(header_limit_ms=400, body_limit_ms=400)
    slow_header = server.connect()
    slow_header.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n")
    slow_body = server.connect()
    slow_body.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
    many = [server.connect() for _ in range(300)]
    for sock in many:
        sock.sendall(b"G")
    assert server.chat("x").status_code == 200
    for sock in (slow_header, slow_body):
        status, headers, body = read_response(sock)
        assert status == 408 and headers["connection"] == "close"
        sock.close()
    for sock in many:
        assert read_response(sock)[0] == 408
        sock.close()
    server.check_idle()


def test_B156_methods_and_paths(fake):
    http = fake.http
    for path in ("/health", "/v1/models", "/", "/metrics", "/version"):
        answer = http.head(path)
        assert answer.status_code == 200 and answer.content == b"" and int(answer.headers["content-length"]) > 0
    for method, path, allow in (("GET", "/v1/chat/completions", "POST"), ("PUT", "/v1/models", "GET, HEAD"), ("POST", "/health", "GET, HEAD"),
                                ("DELETE", "/v1/models/fake", "GET, HEAD"), ("OPTIONS", "/v1/completions", "POST")):
        answer = http.request(method, path)
        assert answer.status_code == 405 and answer.headers["allow"] == allow
        assert answer.json()["error"]["code"] == "method_not_allowed"
    for path in ("/nope", "/v1", "/v1/", "/v1/models/", "/health/"):
        answer = http.get(path)
        assert answer.status_code == 404 and answer.json()["error"]["message"]
    assert http.get("/v1/models/fake").json()["id"] == "fake"
    assert http.get("/v1/models/fake%2Falias").json()["id"] == "fake/alias"
    assert http.get("/v1/models/fake/alias").json()["id"] == "fake/alias"
    answer = http.get("/v1/models/nope")
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "model_not_found"
    assert http.get("/health?x=1").status_code == 200


def test_client_lists_models(fake):
    models = fake.client.models.list().data
    assert [model.id for model in models] == ["fake", "fake/alias"]
    assert models[0].max_model_len == 32768
    assert fake.client.models.retrieve("fake").owned_by == "tandem"


def test_page_may_talk_to_its_own_server_only(fake):
    one, two = fake.http.get("/"), fake.http.get("/")
    policy = one.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "unsafe" not in policy
    nonce = policy.split("script-src 'nonce-")[1].split("'")[0]
    assert one.text.count(nonce) == 2 and "{{" not in one.text and one.text != two.text
    for external in ("http://", "https://", "//cdn", "@import", "<link rel=\"stylesheet\""):
        assert external not in one.text.replace("http://www.w3.org/2000/svg", "")
    assert one.headers["content-type"] == "text/html; charset=utf-8"


def test_too_many_connections_are_told_so(start):
    server = start(max_connections=5)
    server.http.close()
    held = [server.connect() for _ in range(5)]
    for sock in held:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_response(sock)[0] == 200
    with server.connect() as sock:
        assert read_response(sock)[0] == 503
    for sock in held:
        sock.close()


def test_metrics_use_known_names_and_count(fake):
    before = fake.metric("vllm:request_success_total")
    fake.chat("x", max_tokens=3)
    text = fake.http.get("/metrics").text
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:prompt_tokens_total",
                 "vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket",
                 "vllm:e2e_request_latency_seconds_sum", "vllm:request_success_total", "tandem:state_slots", "tandem:kv_pages"):
        assert name in text, name
    assert fake.metric("vllm:request_success_total") == before + 1
