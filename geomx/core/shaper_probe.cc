// See shaper_probe.h.
#include "shaper_probe.h"

#include <algorithm>

#include "shaper.h"
#include "zmq_transport.h"

namespace geomx {
namespace {

constexpr size_t kMessageBytes = 16 << 10;
constexpr char kPing = 'p', kBulk = 'b';

// One end: a loop with a shaped transport.
struct End {
  Loop loop;
  std::unique_ptr<Transport> transport;

  End(const WanShape& shape, uint32_t party, const std::shared_ptr<WanLinks>& links) {
    WanShape own = shape;
    own.party = party;
    ZmqOptions options;
    options.linger_ms = 0;
    transport = std::make_unique<Shaper>(loop, std::make_unique<ZmqTransport>(loop, options), own, links);
  }
  ~End() {
    loop.call([this] { transport->close(); });
    loop.stop();
  }
};

Message message_of(char kind, size_t size) {
  Message message;
  message.head = Bytes::copy(std::string_view(&kind, 1));
  if (size != 0) {
    message.attachments.push_back(Bytes::allocate(size));
    std::memset(message.attachments.back().writable(), 0, size);
  }
  return message;
}

struct Probe {
  End near, far;
  size_t num_messages;
  uint32_t pings;
  PeerId peer = 0;
  std::mutex mutex;  // guards the rest
  std::condition_variable changed;
  std::vector<uint64_t> round_trips_us, arrivals_us;
  uint64_t sent_us = 0;

  Probe(const WanShape& shape, uint32_t from, uint32_t to, const std::shared_ptr<WanLinks>& links, size_t bulk_bytes,
        uint32_t num_pings)
      : near(shape, from, links),
        far(shape, to, links),
        num_messages(std::max<size_t>(bulk_bytes / kMessageBytes, 8)),
        pings(num_pings) {}

  Status start() {
    far.transport->receive(
        [this](PeerId from, uint8_t, Message message) {
          if (message.head.text()[0] == kPing) return far.transport->send(from, 0, message_of(kPing, 0));
          const std::lock_guard lock(mutex);
          arrivals_us.push_back(far.loop.now_us());
          changed.notify_all();
        },
        nullptr, nullptr);
    near.transport->receive([this](PeerId, uint8_t, Message) { on_pong(); }, nullptr, nullptr);
    Status status;
    far.loop.start();
    near.loop.start();
    far.loop.call([&] { status = far.transport->bind("127.0.0.1", 0); });
    if (!status.ok()) return status;
    near.loop.call([&] {
      status = near.transport->connect(far.transport->address(), &peer);
      if (status.ok()) ping();
    });
    return status;
  }

  void ping() {
    sent_us = near.loop.now_us();
    near.transport->send(peer, 0, message_of(kPing, 0));
  }

  void on_pong() {
    size_t known;
    {
      const std::lock_guard lock(mutex);
      round_trips_us.push_back(near.loop.now_us() - sent_us);
      known = round_trips_us.size();
    }
    if (known <= pings) return ping();  // the first opened the connection and doesn't count
    for (size_t i = 0; i < num_messages; ++i) near.transport->send(peer, 0, message_of(kBulk, kMessageBytes));
  }

  bool wait(uint64_t timeout_us) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::microseconds(timeout_us),
                            [this] { return arrivals_us.size() >= num_messages; });
  }
};

}  // namespace

Status probe_shaper(const WanShape& shape, uint32_t from, uint32_t to, size_t bulk_bytes, uint32_t pings,
                    uint64_t timeout_us, ProbeResult* out) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const auto links =
      WanLinks::make(shape.num_parties(), uint64_t(std::chrono::duration_cast<std::chrono::microseconds>(now).count()));
  Probe probe(shape, from, to, links, bulk_bytes, pings);
  if (Status status = probe.start(); !status.ok()) return status;
  if (!probe.wait(timeout_us)) return Status::error("the shaper's self-test took too long");
  std::vector<uint64_t> trips(probe.round_trips_us.begin() + 1, probe.round_trips_us.end());
  std::sort(trips.begin(), trips.end());
  out->delay_us = trips.empty() ? 0 : double(trips[trips.size() / 2]) / 2;
  const double seconds = double(probe.arrivals_us.back() - probe.arrivals_us.front()) * 1e-6;
  // As each message passed the shaper: its framing by ZeroMQ included.
  const double bytes = Shaper::stream_bytes(kMessageBytes + 1 + 2 + 9) * double(probe.num_messages - 1);
  out->bytes_per_s = seconds > 0 ? bytes / seconds : 0;
  return {};
}

}  // namespace geomx
