// Flows over a simulated path: a bottleneck with a queue, delay, and datagrams that get lost, doubled and overtaken.
#include <doctest/doctest.h>

#include <queue>
#include <random>
#include <set>

#include "core/datagram_flow.h"

using namespace geomx;

namespace {

struct Path {
  double bytes_per_s = 6.25e6;  // 50 Mbit/s
  uint64_t delay_us = 25'000;   // one way
  double loss = 0, doubles = 0;
  uint64_t jitter_us = 0;
  double queue_bytes = 312'500;
  uint64_t turn_us[2] = {0, 0};   // a busy host has time for its end only so often; 0: always
  size_t buffer_bytes = 1 << 20;  // of datagrams that wait for it
};

// Two ends, each way a path of its own.
class Pair {
 public:
  Pair(uint64_t seed, Path path, size_t packet = 1472) : random_(seed), path_(path) {
    for (int i = 0; i < 2; ++i) {
      ends_.push_back(std::make_unique<DatagramFlow>(
          7, packet, [this, i](uint8_t, const std::vector<uint8_t>& datagram) { transmit(i, datagram); },
          [this, i](uint8_t channel, Message message) { arrived_[i].emplace_back(channel, std::move(message)); }));
      ends_.back()->set_their_buffer(path.buffer_bytes / 2);
    }
  }
  bool has_turn(int i) const { return turn_of(i, now_us_) == now_us_; }
  DatagramFlow& end(int i) { return *ends_[i]; }
  std::vector<std::pair<uint8_t, Message>>& arrived(int i) { return arrived_[i]; }
  uint64_t now_us() const { return now_us_; }
  bool drops_everything = false;

  void send(int i, uint8_t channel, const std::string& head, size_t size = 0) {
    Message message;
    message.head = Bytes::copy(head);
    if (size != 0) {
      Bytes body = Bytes::allocate(size);
      for (size_t k = 0; k < size; ++k) body.writable()[k] = uint8_t(k * 31 + size);
      message.attachments.push_back(body);
    }
    ends_[i]->send(channel, message, now_us_);
  }
  // Until nothing is under way, or the time is over.
  bool run(
      uint64_t until_us, const std::function<bool()>& is_done = [] { return false; }) {
    for (auto& end : ends_) end->run(now_us_);
    while (!is_done()) {
      uint64_t next = events_.empty() ? 0 : events_.top().when_us;
      for (int i = 0; i < 2; ++i) {
        const uint64_t due = ends_[i]->next_us();
        const uint64_t at = due == 0 ? 0 : turn_of(i, std::max(due, now_us_ + 1));
        if (at != 0 && (next == 0 || at < next)) next = at;
      }
      if (next == 0) return true;
      if (next > until_us) {
        now_us_ = until_us;
        return false;
      }
      now_us_ = std::max(now_us_, next);
      while (!events_.empty() && events_.top().when_us <= now_us_) {
        const Event event = events_.top();
        events_.pop();
        const auto packet = parse_packet(event.datagram.data(), event.datagram.size());
        REQUIRE(packet);
        waiting_[event.to] -= event.datagram.size();
        if (packet->kind == PacketKind::data)
          ends_[event.to]->take_data(*packet, now_us_, event.arrived_us);
        else
          ends_[event.to]->take_ack(*packet, now_us_, event.arrived_us);
      }
      for (int i = 0; i < 2; ++i)
        if (has_turn(i)) ends_[i]->run(now_us_);
    }
    return true;
  }

 private:
  struct Event {
    uint64_t when_us, order, arrived_us;
    int to;
    std::vector<uint8_t> datagram;
    bool operator<(const Event& other) const {
      return when_us != other.when_us ? when_us > other.when_us : order > other.order;
    }
  };
  uint64_t turn_of(int i, uint64_t us) const {
    const uint64_t turn_us = path_.turn_us[i];
    return turn_us == 0 ? us : (us + turn_us - 1) / turn_us * turn_us;
  }
  double chance() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  void transmit(int from, const std::vector<uint8_t>& datagram) {
    double& busy = busy_us_[from];
    const double waiting = std::max(0.0, busy - double(now_us_)) * 1e-6 * path_.bytes_per_s;
    if (waiting + double(datagram.size()) > path_.queue_bytes) return;
    busy = std::max(busy, double(now_us_)) + double(datagram.size() + 28) / path_.bytes_per_s * 1e6;
    if (drops_everything || chance() < path_.loss) return;
    for (int copies = chance() < path_.doubles ? 2 : 1; copies > 0; --copies) {
      const uint64_t jitter = path_.jitter_us == 0 ? 0 : random_() % path_.jitter_us;
      const uint64_t at_us = uint64_t(busy) + path_.delay_us + jitter;
      if (waiting_[1 - from] + datagram.size() > path_.buffer_bytes && path_.turn_us[1 - from] != 0) continue;
      waiting_[1 - from] += datagram.size();
      events_.push({turn_of(1 - from, at_us), order_++, at_us, 1 - from, datagram});
    }
  }

  std::mt19937_64 random_;
  Path path_;
  uint64_t now_us_ = 1'000'000, order_ = 0;
  double busy_us_[2] = {0, 0};
  size_t waiting_[2] = {0, 0};  // on the way to each, or before it
  std::priority_queue<Event> events_;
  std::vector<std::unique_ptr<DatagramFlow>> ends_;
  std::vector<std::pair<uint8_t, Message>> arrived_[2];
};

// How long `bytes` take, reliably, on a flow that has run before.
double seconds_for(Pair& pair, size_t bytes) {
  const uint64_t begin = pair.now_us();
  const size_t before = pair.arrived(1).size();
  size_t given = 0, messages = 0;
  REQUIRE(pair.run(begin + 120'000'000, [&] {
    while (given < bytes && pair.has_turn(0) && pair.end(0).room() > 0) {
      pair.send(0, 0, "m", 16'000);
      pair.end(0).run(pair.now_us());
      given += 16'000;
      ++messages;
    }
    return given >= bytes && pair.arrived(1).size() - before == messages;
  }));
  return double(pair.now_us() - begin) * 1e-6;
}

}  // namespace

TEST_CASE("a message arrives as it was, of any size, on any channel") {
  Pair pair(1, {});
  for (size_t size : {0, 1, 100, 1300, 1472, 5000, 200'000}) {
    pair.arrived(1).clear();
    pair.send(0, size % 2 ? 2 : 0, "head of " + std::to_string(size), size);
    REQUIRE(pair.run(pair.now_us() + 10'000'000));
    REQUIRE(pair.arrived(1).size() == 1);
    const auto& [channel, message] = pair.arrived(1)[0];
    CHECK(channel == (size % 2 ? 2 : 0));
    CHECK(message.head.text() == "head of " + std::to_string(size));
    REQUIRE(message.attachments.size() == (size == 0 ? 0 : 1));
    for (size_t k = 0; k < size; ++k)
      if (message.attachments[0].data()[k] != uint8_t(k * 31 + size)) FAIL("byte " << k << " of " << size);
  }
}

TEST_CASE("reliable messages arrive once whatever the path does; lossy ones at most once, and not again and again") {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Pair pair(seed, Path{6.25e6, 5'000, 0.2, 0.2, 20'000, 60'000});
    for (int i = 0; i < 100; ++i) {
      pair.send(0, 0, "reliable " + std::to_string(i), size_t(i * 97 % 5000));
      pair.send(0, uint8_t(1 + i % 3), "lossy " + std::to_string(i), size_t(i % 1000));
      pair.send(1, 0, "back " + std::to_string(i), size_t(i * 31 % 3000));
    }
    REQUIRE(pair.run(pair.now_us() + 120'000'000));
    std::multiset<std::string> there, back;
    for (const auto& [channel, message] : pair.arrived(1)) there.insert(std::string(message.head.text()));
    for (const auto& [channel, message] : pair.arrived(0)) back.insert(std::string(message.head.text()));
    int lossy = 0;
    for (int i = 0; i < 100; ++i) {
      CHECK(there.count("reliable " + std::to_string(i)) == 1);
      CHECK(back.count("back " + std::to_string(i)) == 1);
      lossy += int(there.count("lossy " + std::to_string(i)));
      CHECK(there.count("lossy " + std::to_string(i)) <= 1);
    }
    CHECK(lossy > 30);
    CHECK(lossy < 100);
    CHECK(pair.end(0).is_idle());
    CHECK(pair.end(1).is_idle());
  }
}

TEST_CASE("random loss doesn't collapse the rate") {
  for (double loss : {0.0, 0.01, 0.05}) {
    Pair pair(3, Path{6.25e6, 25'000, loss, 0, 0, 312'500});
    seconds_for(pair, 5'000'000);
    const double seconds = seconds_for(pair, 12'500'000);
    const double share = 12'500'000 / seconds / 6.25e6;
    INFO("loss ", loss, ": ", share, " of the link; lost ", pair.end(0).figures().lost_packets, " of ",
         pair.end(0).figures().packets, ", repeated ", pair.end(0).figures().repeated_bytes);
    CHECK(share > 0.75);
  }
}

TEST_CASE("a burst after a pause begins at the rate that was found before") {
  Pair pair(4, {});
  seconds_for(pair, 5'000'000);
  for (int i = 0; i < 5; ++i) {
    pair.run(pair.now_us() + 150'000);
    const double seconds = seconds_for(pair, 720'000);
    INFO("720 kB after a pause: ", seconds, " s");
    CHECK(seconds < 0.22);
  }
}

TEST_CASE("the short path between two busy hosts carries what they have time for") {
  for (const auto& [ours, theirs] :
       {std::pair<uint64_t, uint64_t>{0, 20'000}, {20'000, 0}, {20'000, 20'000}, {50'000, 50'000}, {5'000, 100'000}}) {
    Pair pair(6, Path{125e6, 50, 0, 0, 0, 500'000, {ours, theirs}});
    seconds_for(pair, 10'000'000);
    const double rate = 20'000'000 / seconds_for(pair, 20'000'000);
    INFO("turns of ", ours, " and ", theirs, " us: ", rate, " bytes/s");
    CHECK(rate > 0.3 * double(1 << 19) * 1e6 / double(ours + theirs));
  }
}

TEST_CASE("a host that comes to it late loses no rate for that") {
  for (uint64_t turn_us : {3'000, 7'000, 20'000}) {
    Pair pair(7, Path{62.5e6, 5'000, 0.01, 0, 0, 1'000'000, {turn_us, 0}});
    seconds_for(pair, 60'000'000);
    const double share = 60'000'000 / seconds_for(pair, 60'000'000) / 62.5e6;
    INFO("a turn each ", turn_us, " us: ", share, " of the link");
    CHECK(share > (turn_us > 10'000 ? 0.2 : 0.6));
  }
}

TEST_CASE("a flow that never pauses looks at its path and goes on as before") {
  Pair pair(8, Path{25e6, 5'000, 0, 0, 0, 250'000});
  seconds_for(pair, 12'500'000);
  double longest = 0;
  while (pair.now_us() < 24'000'000) longest = std::max(longest, seconds_for(pair, 5'000'000));
  INFO("the longest of pieces that take 0.2 s: ", longest, " s");
  CHECK(longest < 0.6);
}

TEST_CASE("a path that is dead is noticed, and what wasn't acknowledged is handed back") {
  Pair pair(5, {});
  pair.send(0, 0, "first");
  REQUIRE(pair.run(pair.now_us() + 1'000'000));
  pair.drops_everything = true;
  pair.send(0, 0, "second", 3000);
  pair.send(0, 1, "lossy");
  pair.run(pair.now_us() + 10'000'000, [&] { return pair.end(0).is_stuck(pair.now_us()); });
  REQUIRE(pair.end(0).is_stuck(pair.now_us()));
  const std::vector<Message> left = pair.end(0).take_unacknowledged();
  REQUIRE(left.size() == 1);
  CHECK(left[0].head.text() == "second");
  CHECK(pair.end(0).is_idle());
}

TEST_CASE("memory for halves of messages is bounded") {
  Pair pair(6, {});
  Packet packet;
  packet.kind = PacketKind::data;
  packet.channel = 1;
  const uint8_t byte = 0;
  for (uint64_t i = 1; i <= 1000; ++i) {
    packet.number = i;
    packet.chunks = {{i, 0, 1 << 20, &byte, 1}};
    pair.end(0).take_data(packet, 1, 1);
  }
  CHECK(pair.end(0).figures().crowded == 0);  // of lossy ones the oldest make room
  packet.channel = 0;
  for (uint64_t i = 1001; i <= 2000; ++i) {
    packet.number = i;
    packet.chunks = {{i, 0, 1 << 20, &byte, 1}};
    pair.end(0).take_data(packet, 1, 1);
  }
  CHECK(pair.end(0).figures().crowded == 1000 - 512);
}

TEST_CASE("packets that are not ours are refused, ours come back as they were") {
  Packet ack;
  ack.kind = PacketKind::ack;
  ack.key = 99;
  ack.delay_us = 5;
  ack.ranges = {{90, 100}, {50, 60}, {1, 2}};
  const auto bytes = write_packet(ack);
  const auto back = parse_packet(bytes.data(), bytes.size());
  REQUIRE(back);
  CHECK(back->ranges == ack.ranges);
  CHECK(back->key == 99);
  for (size_t cut = 0; cut < bytes.size(); ++cut) CHECK_FALSE(parse_packet(bytes.data(), cut));
  Packet probe;
  probe.size = 700;
  CHECK(write_packet(probe).size() == 700);
  CHECK_FALSE(parse_datagram_offer(Bytes::copy("GX....")));
  const auto offer = parse_datagram_offer(pack(DatagramOffer{9, 8, 7}));
  REQUIRE(offer);
  CHECK((offer->port == 9 && offer->key == 8));
}
