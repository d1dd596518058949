// Real sockets on this host: who gets in, what arrives, how ends and failures are told.
#include <algorithm>
#include <thread>

#include "site.h"

namespace {

using namespace geomx;

ZmqOptions with_token(const std::string& token) {
  ZmqOptions options;
  options.token = token;
  return options;
}

void send_raw(uint16_t port, const std::string& bytes) {
  const int fd = connect_stranger(SOCK_STREAM, port);
  say(fd, bytes);
  ::close(fd);
}

TEST_CASE("messages go both ways over one connection, in order, with attachments of every size") {
  for (bool is_memory_shared : {false, true}) {
    ZmqOptions options;
    options.is_memory_shared = is_memory_shared;
    Site server(options), client(options);
    const PeerId to_server = client.connect(server.listen());
    const std::vector<size_t> sizes = {0, 1, 255, 256, 1023, 1024, 32767, 32768, 40000, 3000000};
    for (size_t i = 0; i < sizes.size(); ++i) {
      client.send(to_server,
                  {Bytes::copy("message " + std::to_string(i)), {Bytes::copy(pattern(sizes[i])), Bytes::copy("last")}});
    }
    REQUIRE(server.wait_arrivals(sizes.size()));
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Message message = server.arrivals()[i].message;
      CHECK(server.text(i) == "message " + std::to_string(i));
      REQUIRE(message.attachments.size() == 2);
      CHECK(message.attachments[0].text() == pattern(sizes[i]));
      CHECK(message.attachments[1].text() == "last");
    }
    server.send(server.arrivals()[0].from, {Bytes::copy("answer"), {Bytes::copy(pattern(50000))}});
    REQUIRE(client.wait_arrivals(1));
    CHECK(client.arrivals()[0].from == to_server);
    CHECK(client.arrivals()[0].message.attachments[0].text() == pattern(50000));
    CHECK(server.refusals().empty());
    CHECK(client.losses().empty());
  }
}

TEST_CASE("a connection may be opened before anybody listens: told once, and everything arrives once") {
  const KeptPort kept;
  const uint16_t port = kept.number;
  Site client;
  const PeerId peer = client.connect(port);
  client.send(peer, "early");
  REQUIRE(client.wait_losses(1));
  const std::string address = "127.0.0.1:" + std::to_string(port);
  CHECK(client.losses()[0] == "no connection to " + address + " yet: connection refused; trying on");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  Site server;
  REQUIRE(server.listen(port) == port);
  client.send(peer, "later");
  REQUIRE(server.wait_arrivals(2));
  CHECK(server.text(0) == "early");
  CHECK(server.text(1) == "later");
  CHECK(client.losses().size() == 1);
  CHECK_FALSE(client.is_lost(peer));
}

TEST_CASE("what can't be connected to is an error at once") {
  Site site;
  site.loop.call([&] {
    PeerId peer = 77;
    CHECK(site.transport->connect("no_such_host.invalid:80", &peer)
              .message()
              .find("can't connect to no_such_host.invalid:80: unknown host 'no_such_host.invalid': ") == 0);
    CHECK(
        site.transport->connect("127.0.0.1", &peer).message().find("can't connect to 127.0.0.1: expected host:port") ==
        0);
    CHECK(peer == 77);
  });
}

TEST_CASE("a taken port is told with who has it") {
  Site first, second;
  const uint16_t port = first.listen();
  second.loop.call([&] {
    const std::string message = second.transport->bind("127.0.0.1", port).message();
    const std::string expected = "can't listen on 127.0.0.1:" + std::to_string(port) +
                                 ": address already in use by process " + std::to_string(getpid()) + " (";
    CHECK(message.find(expected) == 0);
  });
  second.loop.call([&] {
    CHECK(second.transport->bind("192.0.2.1", 0).message() ==
          "can't listen on 192.0.2.1:0: Cannot assign requested address");
  });
  CHECK(second.listen() != 0);
}

TEST_CASE("who shows the token gets in; who shows another, or none, or one where none is set, is told why") {
  struct Case {
    const char *server, *client, *why;
  };
  for (const Case& at : {Case{"secret", "guess", "it shows another token than this node's (GEOMX_TOKEN)"},
                         Case{"secret", "", "it shows no token, but one is set on this node (GEOMX_TOKEN)"},
                         Case{"", "guess", "it shows a token, but none is set on this node (GEOMX_TOKEN)"}}) {
    Site server(with_token(at.server)), client(with_token(at.client));
    const uint16_t port = server.listen();
    PeerId peer = 0;
    client.loop.call([&] {  // at once, so that the message leaves before the answer comes
      REQUIRE(client.transport->connect("127.0.0.1:" + std::to_string(port), &peer).ok());
      client.transport->send(peer, 0, {Bytes::copy("let me in"), {}});
    });
    REQUIRE(server.wait_refusals(2));  // the greeting, and the message that came with it
    CHECK(server.refusals()[0] == std::string("a connection from 127.0.0.1: ") + at.why);
    CHECK(server.refusals()[1] == "a message from 127.0.0.1 that said no hello");
    REQUIRE(client.wait_losses(1));
    CHECK(client.losses()[0] ==
          "the connection to 127.0.0.1:" + std::to_string(port) + " is refused by the node there: " + at.why);
    CHECK(client.is_lost(peer));
    CHECK(server.arrivals().empty());
  }
  Site server(with_token("secret")), client(with_token("secret"));
  client.send(client.connect(server.listen()), "let me in");
  CHECK(server.wait_arrivals(1));
}

TEST_CASE("random bytes at the port are counted and dropped, and others are served on") {
  Site server, client;
  const uint16_t port = server.listen();
  const PeerId peer = client.connect(port);
  client.send(peer, "before");
  REQUIRE(server.wait_arrivals(1));
  send_raw(port, "GET / HTTP/1.1\r\n\r\n");
  REQUIRE(server.wait_refusals(1));
  send_raw(port, pattern(100000));
  send_raw(port, std::string(64, '\xff'));
  REQUIRE(server.wait_refusals(3));
  CHECK(server.refusals()[0] == "a connection to " + server.transport->address() + " spoke something else");
  client.send(peer, "after");
  REQUIRE(server.wait_arrivals(2));
  CHECK(server.text(1) == "after");
  CHECK(server.losses().empty());
}

// A ZeroMQ socket without our manners.
class Stranger {
 public:
  explicit Stranger(uint16_t port, const std::string& identity = "") {
    socket_ = zmq_socket(context_, ZMQ_DEALER);
    const int linger_ms = 0;
    zmq_setsockopt(socket_, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
    if (!identity.empty()) zmq_setsockopt(socket_, ZMQ_ROUTING_ID, identity.data(), identity.size());
    REQUIRE(zmq_connect(socket_, ("tcp://127.0.0.1:" + std::to_string(port)).c_str()) == 0);
  }
  ~Stranger() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void send(const std::vector<std::string>& frames) {
    for (size_t i = 0; i < frames.size(); ++i) {
      zmq_send(socket_, frames[i].data(), frames[i].size(), i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
    }
  }

 private:
  void* context_ = zmq_ctx_new();
  void* socket_;
};

std::string hello_text(const std::string& token) {
  Hello hello;
  hello.proof = hello_proof(token);
  return std::string(pack(hello).text());
}

TEST_CASE("without hello, or with a chosen identity, nothing reaches the node") {
  Site server(with_token("secret"));
  const uint16_t port = server.listen();
  Stranger rude(port), chooser(port, "server-0");
  rude.send({"a message"});
  rude.send({""});
  rude.send({"", ""});
  rude.send({"", "GXH1", "more"});
  rude.send({"", "GXH1" + std::string(10, 'x')});
  rude.send({
      "",
      hello_text("other"),
  });
  rude.send(std::vector<std::string>(70000, "x"));
  REQUIRE(server.wait_refusals(7));
  chooser.send({"", hello_text("secret")});
  REQUIRE(server.wait_refusals(8));
  CHECK(server.refusals()[7] == "a connection from 127.0.0.1 that chose its own identity");
  CHECK(server.arrivals().empty());
}

TEST_CASE("after a good hello, malformed internal messages are counted and dropped") {
  Site server(with_token("secret"));
  Stranger insider(server.listen());
  insider.send({"", hello_text("secret")});
  insider.send({"good"});
  REQUIRE(server.wait_arrivals(1));
  insider.send({"", "nonsense"});
  insider.send({""});
  insider.send({"", "GXB1", "head"});
  Blocks blocks;
  blocks.blocks.push_back({1, 0, 5, 0, 1 << 20});
  insider.send({"", std::string(pack(blocks).text()), "head"});
  insider.send({"", "GXR1" + std::string(8, '\xff')});  // a loan that never was: nothing to do
  insider.send({"", hello_text("secret")});
  REQUIRE(server.wait_refusals(5));
  insider.send({"still good"});
  REQUIRE(server.wait_arrivals(2));
  CHECK(server.refusals().size() == 5);
}

TEST_CASE("a stray server that doesn't know the token gets nobody's trust") {
  void* context = zmq_ctx_new();
  void* router = zmq_socket(context, ZMQ_ROUTER);
  REQUIRE(zmq_bind(router, "tcp://127.0.0.1:*") == 0);
  char endpoint[128];
  size_t size = sizeof(endpoint);
  zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint, &size);
  Site client(with_token("secret"));
  const PeerId peer = client.connect(static_cast<uint16_t>(std::stoul(std::string(endpoint).substr(16))));
  char id[16];
  const int id_size = zmq_recv(router, id, sizeof(id), 0);
  REQUIRE(id_size == 5);
  Welcome welcome;
  welcome.proof = hello_proof("secret");  // what it could know from the hello
  zmq_send(router, id, 5, ZMQ_SNDMORE);
  zmq_send(router, "", 0, ZMQ_SNDMORE);
  const Bytes packed = pack(welcome);
  zmq_send(router, packed.data(), packed.size(), 0);
  REQUIRE(client.wait_losses(1));
  CHECK(client.losses()[0].find("doesn't know this run's token") != std::string::npos);
  CHECK(client.is_lost(peer));
  zmq_close(router);
  zmq_ctx_term(context);
}

TEST_CASE("an end is told once, after all that was sent before it") {
  for (int repeat = 0; repeat < 10; ++repeat) {
    Site server;
    auto client = std::make_unique<Site>();
    const PeerId peer = client->connect(server.listen());
    for (int i = 0; i < 200; ++i) client->send(peer, {Bytes::copy(std::to_string(i)), {Bytes::copy(pattern(2000))}});
    client->close();
    REQUIRE(server.wait_losses(1));
    CHECK(server.arrivals().size() == 200);
    REQUIRE(server.losses().size() == 1);
    CHECK(server.losses()[0] == "the connection from 127.0.0.1 is lost: the other side closed it");
    server.send(server.arrivals()[0].from, "to nobody");
  }
}

TEST_CASE("a node that closes at once, with answers unread, still delivers all") {
  for (int repeat = 0; repeat < 5; ++repeat) {
    Site server;
    Site client;
    const PeerId peer = client.connect(server.listen());
    client.send(peer, "who are you");
    REQUIRE(server.wait_arrivals(1));
    const PeerId back = server.arrivals()[0].from;
    for (int i = 0; i < 100; ++i) client.send(peer, {Bytes::copy("up"), {Bytes::copy(pattern(30000))}});
    std::thread other([&] {
      for (int i = 0; i < 100; ++i) server.send(back, {Bytes::copy("down"), {Bytes::copy(pattern(30000))}});
    });
    client.close();
    other.join();
    REQUIRE(server.wait_losses(1));
    CHECK(server.arrivals().size() == 101);
  }
}

TEST_CASE("both sides may close at once") {
  ZmqOptions patient;
  patient.linger_ms = 60'000;
  for (int repeat = 0; repeat < 10; ++repeat) {
    Site server(patient), client(patient);
    const PeerId peer = client.connect(server.listen());
    client.send(peer, "hello");
    REQUIRE(server.wait_arrivals(1));
    const auto start = std::chrono::steady_clock::now();
    std::thread other([&] { client.close(); });
    server.close();
    other.join();
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));  // neither waits for the other
  }
}

TEST_CASE("the other way round too: what a server said before it went is read first") {
  for (int repeat = 0; repeat < 10; ++repeat) {
    auto server = std::make_unique<Site>();
    Site client;
    const uint16_t port = server->listen();
    const PeerId peer = client.connect(port);
    client.send(peer, "who are you");
    REQUIRE(server->wait_arrivals(1));
    for (int i = 0; i < 50; ++i) server->send(server->arrivals()[0].from, "goodbye");
    server->close();
    REQUIRE(client.wait_losses(1));
    CHECK(client.arrivals().size() == 50);
    CHECK(client.losses()[0] ==
          "the connection to 127.0.0.1:" + std::to_string(port) + " is lost: the other side closed it");
    CHECK(client.is_lost(peer));
  }
}

TEST_CASE("the end of a peer that is killed is told") {
  Child child([](uint16_t port) {
    Site client;
    client.send(client.connect(port), "alive");
    for (;;) pause();
  });
  Site server;
  child.start(server.listen());
  CHECK(server.wait_arrivals(1));
  child.end();
  CHECK(server.wait_losses(1));
}

TEST_CASE("many peers, and connections that come and go, are told apart") {
  Site server;
  const uint16_t port = server.listen();
  size_t expected = 0;
  for (int round = 0; round < 4; ++round) {
    std::vector<std::unique_ptr<Site>> clients;
    for (int i = 0; i < 5; ++i) {
      clients.push_back(std::make_unique<Site>());
      clients.back()->send(clients.back()->connect(port), "hello " + std::to_string(expected++));
    }
    REQUIRE(server.wait_arrivals(expected));
    for (auto& client : clients) client->close();
    REQUIRE(server.wait_losses(expected));
  }
  std::vector<PeerId> peers;
  for (const Site::Arrival& arrival : server.arrivals()) peers.push_back(arrival.from);
  std::sort(peers.begin(), peers.end());
  CHECK(std::unique(peers.begin(), peers.end()) == peers.end());
  CHECK(server.losses().size() == expected);
  for (const std::string& why : server.refusals()) FAIL_CHECK(why);
}

TEST_CASE("a transport may be closed from within a callback") {
  Site server, client;
  const PeerId peer = client.connect(server.listen());
  server.loop.call([&] {
    server.transport->receive([&](PeerId, uint8_t, Message) { server.transport->close(); }, nullptr, nullptr);
  });
  for (int i = 0; i < 100; ++i) client.send(peer, "enough");
  CHECK(client.wait_losses(1));
}

TEST_CASE("the framing that ZeroMQ adds is counted") {
  Site site;
  CHECK(site.transport->overhead({Bytes::copy("head"), {}}) == 2);
  CHECK(site.transport->overhead({Bytes::copy("head"), {Bytes::allocate(255), Bytes::allocate(256)}}) == 13);
}

}  // namespace
