// See datagram_inbox.h.
#include "datagram_inbox.h"

#include <algorithm>
#include <cstring>

namespace geomx {
namespace {

constexpr int kAckEvery = 4;
constexpr size_t kAckRangesKept = 256;
constexpr uint64_t kMaxIncoming[2] = {uint64_t(16) << 20, uint64_t(512) << 20};  // memory of halves: lossy, reliable

}  // namespace

void DatagramInbox::take(const Packet& packet, uint64_t now_us, uint64_t arrived_us) {
  if (received_.contains(packet.number)) {
    ++figures_.doubles;
    ack_due_us_ = now_us;
    return;
  }
  for (const Chunk& chunk : packet.chunks)
    if (is_crowded(packet.channel, chunk)) return;  // not acknowledged: a reliable one comes again
  const bool is_in_order = packet.number == received_.end() || received_.count() == 0;
  if (packet.number >= received_.end()) largest_us_ = arrived_us;
  received_.add(packet.number, packet.number + 1);
  received_.forget_below(kAckRangesKept);
  ++unacknowledged_;
  const uint64_t due_us = is_in_order && unacknowledged_ < kAckEvery ? now_us + kAckDelayUs : now_us;
  ack_due_us_ = ack_due_us_ == 0 ? due_us : std::min(ack_due_us_, due_us);
  for (const Chunk& chunk : packet.chunks)
    if (!take_chunk(packet.channel, chunk)) ++figures_.malformed;
}

// Memory for messages that are not whole is bounded. Of lossy ones the oldest make room.
bool DatagramInbox::is_crowded(uint8_t channel, const Chunk& chunk) {
  const bool is_reliable = channel == 0;
  auto& halves = incoming_[is_reliable];
  if (chunk.size == chunk.total || halves.count(chunk.message) != 0) return false;
  uint64_t& bytes = incoming_bytes_[is_reliable];
  while (!is_reliable && !halves.empty() && bytes + chunk.total > kMaxIncoming[0]) {
    bytes -= halves.begin()->second.flat.size();
    halves.erase(halves.begin());
  }
  if (bytes + chunk.total <= kMaxIncoming[is_reliable]) return false;
  ++figures_.crowded;
  return true;
}

bool DatagramInbox::take_chunk(uint8_t channel, const Chunk& chunk) {
  const bool is_reliable = channel == 0;
  if (is_reliable && complete_.contains(chunk.message)) return true;
  auto& halves = incoming_[is_reliable];
  auto found = halves.find(chunk.message);
  if (found == halves.end()) {
    if (chunk.size == chunk.total) {
      if (is_reliable) complete_.add(chunk.message, chunk.message + 1);
      deliver(channel, Bytes::copy(chunk.data, chunk.size));
      return true;
    }
    found = halves.emplace(chunk.message, Incoming{Bytes::allocate(size_t(chunk.total)), {}, channel}).first;
    incoming_bytes_[is_reliable] += chunk.total;
  }
  Incoming& half = found->second;
  if (half.flat.size() != chunk.total || half.channel != channel) return false;
  std::memcpy(half.flat.writable() + chunk.offset, chunk.data, chunk.size);
  half.received.add(chunk.offset, chunk.offset + chunk.size);
  if (half.received.count() != chunk.total) return true;
  const Bytes whole = std::move(half.flat);
  incoming_bytes_[is_reliable] -= chunk.total;
  halves.erase(found);
  if (is_reliable) complete_.add(chunk.message, chunk.message + 1);
  deliver(channel, whole);
  return true;
}

void DatagramInbox::deliver(uint8_t channel, const Bytes& flat) {
  std::optional<Message> message = unflatten(flat);
  if (!message) {
    ++figures_.malformed;
    return;
  }
  deliver_(channel, std::move(*message));
}

std::optional<Packet> DatagramInbox::acknowledge(uint64_t now_us) {
  ack_due_us_ = 0;
  unacknowledged_ = 0;
  if (received_.count() == 0) return std::nullopt;
  Packet packet;
  packet.kind = PacketKind::ack;
  packet.delay_us = now_us - largest_us_;
  const auto& all = received_.all();
  for (auto range = all.rbegin(); range != all.rend() && packet.ranges.size() < kMaxAckRanges; ++range)
    packet.ranges.emplace_back(range->first, range->second);
  return packet;
}

}  // namespace geomx
