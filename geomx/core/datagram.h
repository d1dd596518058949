// What travels in a datagram, and how a message is cut into them. Little-endian; parsing is validation.
//
//   packet  = 'G' | kind u8 | key u64 | body          key: the receiver chose it for this sender
//   probe   = time u64 | size u16 | zeros             a try whether so large a datagram gets through
//   reply   = time u64 | size u16
//   data    = channel u8 | flags u8 | number varint | chunk+
//   chunk   = message varint | offset varint | total varint | size varint | bytes
//   ack     = delay_us varint | end varint | ranges varint | (length varint | gap varint)*    from the newest down
//   message = count varint | size varint each | bytes
//
// Owns nothing; any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "transport.h"

namespace geomx {

enum class PacketKind : uint8_t { probe = 1, reply = 2, data = 3, ack = 4 };

constexpr size_t kPacketHeader = 10;
constexpr size_t kDataHeader = kPacketHeader + 2 + 10;  // at most
constexpr size_t kChunkHeader = 10 + 5 + 5 + 3;         // at most
constexpr uint64_t kMaxMessageBytes = uint64_t(256) << 20;
constexpr size_t kMaxAckRanges = 32;

struct Chunk {
  uint64_t message = 0;
  uint64_t offset = 0, total = 0;
  const uint8_t* data = nullptr;
  size_t size = 0;
};

struct Packet {
  PacketKind kind = PacketKind::probe;
  uint64_t key = 0;
  uint64_t time = 0;  // probe, reply
  size_t size = 0;
  uint8_t channel = 0;  // data
  bool wants_ack = false;
  uint64_t number = 0;
  std::vector<Chunk> chunks;                          // views into the datagram
  uint64_t delay_us = 0;                              // ack
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  // first, end; the newest first
};

std::optional<Packet> parse_packet(const uint8_t* data, size_t size);
std::vector<uint8_t> write_packet(const Packet& packet);  // probes are padded to their size

Bytes flatten(const Message& message);
// Views into the bytes.
std::optional<Message> unflatten(const Bytes& flat);

// How two nodes tell each other, over their stream, where and by which key they take datagrams.
struct DatagramOffer {
  uint16_t port = 0;
  uint64_t key = 0;
  uint64_t buffer = 0;  // bytes of a peer's datagrams that may wait there to be read
};
Bytes pack(const DatagramOffer& offer);
bool is_datagram_offer(const Bytes& head);
std::optional<DatagramOffer> parse_datagram_offer(const Bytes& head);

}  // namespace geomx
