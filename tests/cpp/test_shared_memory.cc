// Arenas, views of others' arenas, and the transport's use of both, in one process and between processes.
#include <doctest/doctest.h>

#include <random>
#include <thread>

#include "site.h"

namespace {

using namespace geomx;

std::shared_ptr<Arena> make_arena() {
  auto arena = Arena::create();
  REQUIRE_MESSAGE(bool(arena), "this kernel gives no memfd");
  return arena;
}

TEST_CASE("freed blocks are used again, and neighbours grow together") {
  const auto arena = make_arena();
  Bytes a = arena->allocate(40000), b = arena->allocate(40000), c = arena->allocate(40000);
  const uint8_t* start = a.data();
  CHECK(b.data() == start + 40960);
  CHECK(arena->used_bytes() == 3 * 40960);
  a = {}, c = {}, b = {};
  CHECK(arena->used_bytes() == 0);
  const Bytes whole = arena->allocate(4 << 20);
  CHECK(whole.data() == start);
  const Bytes large = arena->allocate(100 << 20);
  CHECK(large.size() == 100 << 20);
  CHECK(arena->allocate(0).empty());
}

TEST_CASE("a slice keeps its block, and bytes are found where they lie") {
  const auto arena = make_arena();
  Bytes block = arena->allocate(100000);
  Bytes slice = block.slice(5000, 100);
  block = {};
  CHECK(arena->used_bytes() != 0);
  int32_t fd = -1;
  uint64_t offset = 0;
  CHECK(arena->find(slice, &fd, &offset));
  CHECK(offset == 5000);
  CHECK_FALSE(arena->find(Bytes::allocate(10), &fd, &offset));
  slice = {};
  CHECK(arena->used_bytes() == 0);
}

TEST_CASE("blocks that are taken and freed at random never overlap") {
  const auto arena = make_arena();
  std::mt19937 random(7);
  std::vector<std::pair<Bytes, uint8_t>> blocks;
  for (int step = 0; step < 3000; ++step) {
    if (blocks.empty() || random() % 3 != 0) {
      Bytes block = arena->allocate(1 + random() % 50000);
      const uint8_t mark = static_cast<uint8_t>(random());
      block.writable()[0] = block.writable()[block.size() - 1] = mark;
      blocks.emplace_back(std::move(block), mark);
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const auto& [block, mark] = blocks.back();
      CHECK((block.data()[0] == mark && block.data()[block.size() - 1] == mark));
      blocks.pop_back();
    }
    if (blocks.size() > 200) blocks.clear();
  }
  blocks.clear();
  CHECK(arena->used_bytes() == 0);
}

TEST_CASE("an arena may be used from many threads") {
  const auto arena = make_arena();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int step = 0; step < 300; ++step) {
        Bytes block = arena->allocate(33000 + static_cast<size_t>(i) * 1000);
        block.writable()[0] = static_cast<uint8_t>(i);
        std::this_thread::yield();
        if (block.data()[0] != i) std::abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(arena->used_bytes() == 0);
}

TEST_CASE("only memory that was offered is opened") {
  const auto arena = make_arena();
  CHECK(bool(ForeignMemory::open(arena->offer(), std::make_shared<MappedPages>(1 << 20))));
  MemoryOffer other = arena->offer();
  other.nonce[3] ^= 1;
  CHECK_FALSE(bool(ForeignMemory::open(other, std::make_shared<MappedPages>(1 << 20))));
  other = arena->offer();
  other.host[0] ^= 1;
  CHECK_FALSE(bool(ForeignMemory::open(other, std::make_shared<MappedPages>(1 << 20))));
  for (int32_t fd : {-1, 0, 1, 2, 12345}) {
    other = arena->offer();
    other.fd = fd;
    CHECK_FALSE(bool(ForeignMemory::open(other, std::make_shared<MappedPages>(1 << 20))));
  }
  other = arena->offer();
  other.pid = 0x7fffffff;
  CHECK_FALSE(bool(ForeignMemory::open(other, std::make_shared<MappedPages>(1 << 20))));
}

TEST_CASE("views are checked, tell when they are dropped, and outlive the arena") {
  auto arena = make_arena();
  Bytes block = arena->allocate(50000);
  std::memcpy(block.writable(), "shared", 6);
  BlockReference reference;
  REQUIRE(arena->find(block, &reference.fd, &reference.offset));
  reference.size = 50000;
  const auto memory = ForeignMemory::open(arena->offer(), std::make_shared<MappedPages>(1 << 20));
  int releases = 0;
  Bytes view;
  REQUIRE(memory
              ->view(
                  reference, [&] { ++releases; }, &view)
              .ok());
  CHECK(view.text().substr(0, 6) == "shared");
  CHECK_FALSE(view.is_unique());

  Bytes refused;
  BlockReference beyond = reference;
  beyond.offset = (4 << 20) - 10;
  CHECK(memory
            ->view(
                beyond, [] {}, &refused)
            .message() == "expected a block within 4194304 bytes of shared memory but got 50000 from 4194294");
  beyond.offset = ~uint64_t{0} - 5;
  CHECK_FALSE(memory
                  ->view(
                      beyond, [] {}, &refused)
                  .ok());
  beyond.fd = 0;
  CHECK_FALSE(memory
                  ->view(
                      beyond, [] {}, &refused)
                  .ok());

  block = {};
  arena.reset();
  CHECK(view.text().substr(0, 6) == "shared");
  const Bytes copy = view;
  view = {};
  CHECK(releases == 0);
  { const Bytes last = copy; }
  CHECK(releases == 0);
  const_cast<Bytes&>(copy) = {};
  CHECK(releases == 1);
}

struct Pair {
  Site server, client;
  PeerId to_server = 0, to_client = 0;

  explicit Pair(ZmqOptions options = {}) : server(options), client(options) {
    to_server = client.connect(server.listen());
    client.send(to_server, "here I am");
    REQUIRE(server.wait_arrivals(1));
    to_client = server.arrivals()[0].from;
    server.send(to_client, "and I");
    REQUIRE(client.wait_arrivals(1));
    // The server learns last that its memory can be read, by a message that came before this one.
    client.send(to_server, "good");
    REQUIRE(server.wait_arrivals(2));
    server.drop_arrivals();
    client.drop_arrivals();
  }
  Bytes allocate(Site& site, PeerId peer, size_t size, uint8_t fill) {
    Bytes block;
    site.loop.call([&] { block = site.transport->allocate(peer, size); });
    std::memset(block.writable(), fill, size);
    return block;
  }
};

bool is_filled(const Bytes& bytes, size_t size, uint8_t fill) {
  if (bytes.size() != size) return false;
  for (size_t i = 0; i < size; ++i) {
    if (bytes.data()[i] != fill) return false;
  }
  return true;
}

TEST_CASE("peers of one host share memory, both ways, and give it back") {
  Pair pair;
  CHECK(pair.client.shares_memory_with(pair.to_server));
  CHECK(pair.server.shares_memory_with(pair.to_client));
  for (int round = 0; round < 20; ++round) {
    const uint8_t fill = static_cast<uint8_t>(round);
    pair.client.send(pair.to_server, {Bytes::copy("up"), {pair.allocate(pair.client, pair.to_server, 1 << 20, fill)}});
    REQUIRE(pair.server.wait_arrivals(1));
    CHECK(is_filled(pair.server.arrivals()[0].message.attachments[0], 1 << 20, fill));
    // What came from the client's memory goes on from the server's own.
    pair.server.send(pair.to_client, pair.server.arrivals()[0].message);
    REQUIRE(pair.client.wait_arrivals(1));
    CHECK(is_filled(pair.client.arrivals()[0].message.attachments[0], 1 << 20, fill));
    pair.server.drop_arrivals();
    pair.client.drop_arrivals();
  }
  const auto is_all_back = [&] {
    return pair.client.transport->shared_bytes() == 0 && pair.server.transport->shared_bytes() == 0;
  };
  for (int i = 0; i < 1000 * kPatienceS && !is_all_back(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(is_all_back());
}

TEST_CASE("without leave to share, all goes over TCP") {
  ZmqOptions options;
  options.is_memory_shared = false;
  Pair pair(options);
  CHECK_FALSE(pair.client.shares_memory_with(pair.to_server));
  pair.client.send(pair.to_server, {Bytes::copy("up"), {pair.allocate(pair.client, pair.to_server, 1 << 20, 9)}});
  REQUIRE(pair.server.wait_arrivals(1));
  CHECK(is_filled(pair.server.arrivals()[0].message.attachments[0], 1 << 20, 9));
}

TEST_CASE("one block goes to many peers without being copied") {
  Site server;
  const uint16_t port = server.listen();
  std::vector<std::unique_ptr<Site>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Site>());
    const PeerId peer = clients.back()->connect(port);
    clients.back()->send(peer, "here I am");
    REQUIRE(server.wait_arrivals(2 * clients.size() - 1));
    server.send(server.arrivals().back().from, "and I");
    REQUIRE(clients.back()->wait_arrivals(1));
    clients.back()->send(peer, "good");
    REQUIRE(server.wait_arrivals(2 * clients.size()));
    CHECK(server.shares_memory_with(server.arrivals().back().from));
    clients.back()->drop_arrivals();
  }
  Bytes block;
  server.loop.call([&] { block = server.transport->allocate(server.arrivals()[0].from, 1 << 20); });
  std::memset(block.writable(), 7, block.size());
  CHECK(server.transport->shared_bytes() == 1 << 20);
  std::vector<PeerId> peers;
  for (const Site::Arrival& arrival : server.arrivals()) peers.push_back(arrival.from);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  for (PeerId peer : peers) server.send(peer, {Bytes::copy("down"), {block}});
  for (auto& client : clients) {
    REQUIRE(client->wait_arrivals(1));
    CHECK(is_filled(client->arrivals()[0].message.attachments[0], 1 << 20, 7));
  }
  CHECK(server.transport->shared_bytes() == 1 << 20);
  block = {};
  CHECK(server.transport->shared_bytes() == 1 << 20);

  // What lies elsewhere is copied once for all.
  const Bytes elsewhere = Bytes::copy(std::string(1 << 20, 8));
  server.loop.call([&] {
    for (PeerId peer : peers) server.transport->send(peer, 0, {Bytes::copy("down"), {elsewhere}});
  });
  for (auto& client : clients) {
    REQUIRE(client->wait_arrivals(2));
    CHECK(is_filled(client->arrivals()[1].message.attachments[0], 1 << 20, 8));
  }
  CHECK(server.transport->shared_bytes() == 2 << 20);
  for (auto& client : clients) client->close();  // their loans come back with their ends
  REQUIRE(server.wait_losses(3));
  CHECK(server.transport->shared_bytes() == 0);
}

TEST_CASE("views outlive their transport and are dropped from any thread") {
  Bytes kept;
  {
    Pair pair;
    pair.client.send(pair.to_server, {Bytes::copy("up"), {pair.allocate(pair.client, pair.to_server, 1 << 20, 5)}});
    REQUIRE(pair.server.wait_arrivals(1));
    kept = pair.server.arrivals()[0].message.attachments[0];
  }
  CHECK(is_filled(kept, 1 << 20, 5));
  std::thread([bytes = std::move(kept)]() mutable { bytes = {}; }).join();
}

// Connects, sends a block of 1 MiB, keeps or drops what it is sent, and never ends by itself.
void live_as_client(uint16_t port, bool keeps) {
  Site site;
  const PeerId peer = site.connect(port);
  site.send(peer, "here I am");
  site.wait_arrivals(1);
  Message message{Bytes::copy("block"), {}};
  site.loop.call([&] { message.attachments.push_back(site.transport->allocate(peer, 1 << 20)); });
  std::memset(message.attachments[0].writable(), 42, 1 << 20);
  site.send(peer, std::move(message));
  while (keeps) pause();
  for (;;) {
    if (site.wait_arrivals(1)) site.drop_arrivals();
  }
}

TEST_CASE("between processes: what a killed process sent stays readable, what it held comes back") {
  for (bool keeps : {false, true}) {
    Child child([keeps](uint16_t port) { live_as_client(port, keeps); });
    Site server;
    child.start(server.listen());
    REQUIRE(server.wait_arrivals(1));
    const PeerId peer = server.arrivals()[0].from;
    server.send(peer, "and I");
    REQUIRE(server.wait_arrivals(2));
    CHECK(server.shares_memory_with(peer));
    for (int i = 0; i < 3; ++i) server.send(peer, {Bytes::copy("down"), {Bytes::copy(std::string(100000, 'x'))}});
    if (keeps) {
      CHECK(server.transport->shared_bytes() != 0);
    } else {
      const auto is_back = [&] { return server.transport->shared_bytes() == 0; };
      for (int i = 0; i < 1000 * kPatienceS && !is_back(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      CHECK(is_back());
    }
    child.end();
    REQUIRE(server.wait_losses(1));
    CHECK(server.transport->shared_bytes() == 0);
    CHECK(is_filled(server.arrivals()[1].message.attachments[0], 1 << 20, 42));
  }
}

}  // namespace
