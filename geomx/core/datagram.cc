// See datagram.h.
#include "datagram.h"

#include <cstring>

#include "wire.h"

namespace geomx {
namespace {

constexpr uint8_t kMagic = 'G';
constexpr uint8_t kWantsAck = 1;
constexpr std::string_view kOfferMagic = "GD2";
constexpr uint64_t kMaxPieces = 1u << 17;

bool read_chunks(Reader& in, Packet* packet) {
  while (in.ok() && in.left() > 0) {
    Chunk chunk;
    chunk.message = in.varint();
    chunk.offset = in.varint();
    chunk.total = in.varint();
    const uint64_t size = in.varint();
    if (!in.ok() || size > in.left() || chunk.total > kMaxMessageBytes || chunk.offset > chunk.total ||
        size > chunk.total - chunk.offset || size == 0)
      return false;
    const std::string_view bytes = in.view(size_t(size));
    chunk.data = reinterpret_cast<const uint8_t*>(bytes.data());
    chunk.size = bytes.size();
    packet->chunks.push_back(chunk);
  }
  return in.ok() && !packet->chunks.empty();
}

bool read_ranges(Reader& in, Packet* packet) {
  packet->delay_us = in.varint();
  uint64_t end = in.varint();
  const uint64_t count = in.varint();
  if (!in.ok() || count == 0 || count > kMaxAckRanges) return false;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t length = in.varint(), gap = in.varint();
    if (!in.ok() || length == 0 || length > end) return false;
    packet->ranges.emplace_back(end - length, end);
    if (gap > end - length) return false;
    end -= length + gap;
  }
  return in.done();
}

}  // namespace

std::optional<Packet> parse_packet(const uint8_t* data, size_t size) {
  Reader in(std::string_view(reinterpret_cast<const char*>(data), size));
  if (in.u8() != kMagic) return std::nullopt;
  Packet packet;
  const uint8_t kind = in.u8();
  packet.kind = PacketKind(kind);
  packet.key = in.u64();
  if (!in.ok()) return std::nullopt;
  switch (packet.kind) {
    case PacketKind::probe:
    case PacketKind::reply: {
      packet.time = in.u64();
      const uint8_t low = in.u8();
      packet.size = size_t(low | in.u8() << 8);
      if (!in.ok() || (packet.kind == PacketKind::probe ? packet.size != size : in.left() != 0)) return std::nullopt;
      return packet;
    }
    case PacketKind::data: {
      packet.channel = in.u8();
      packet.wants_ack = in.u8() & kWantsAck;
      packet.number = in.varint();
      if (!in.ok() || !read_chunks(in, &packet)) return std::nullopt;
      return packet;
    }
    case PacketKind::ack:
      if (!read_ranges(in, &packet)) return std::nullopt;
      return packet;
  }
  return std::nullopt;
}

std::vector<uint8_t> write_packet(const Packet& packet) {
  Writer out;
  out.u8(kMagic).u8(uint8_t(packet.kind)).u64(packet.key);
  switch (packet.kind) {
    case PacketKind::probe:
    case PacketKind::reply:
      out.u64(packet.time).u8(uint8_t(packet.size)).u8(uint8_t(packet.size >> 8));
      break;
    case PacketKind::data:
      out.u8(packet.channel).u8(packet.wants_ack ? kWantsAck : 0).varint(packet.number);
      for (const Chunk& chunk : packet.chunks)
        out.varint(chunk.message)
            .varint(chunk.offset)
            .varint(chunk.total)
            .varint(chunk.size)
            .raw(chunk.data, chunk.size);
      break;
    case PacketKind::ack:
      out.varint(packet.delay_us).varint(packet.ranges.front().second).varint(packet.ranges.size());
      for (size_t i = 0; i < packet.ranges.size(); ++i) {
        const auto [first, end] = packet.ranges[i];
        out.varint(end - first).varint(i + 1 < packet.ranges.size() ? first - packet.ranges[i + 1].second : 0);
      }
      break;
  }
  const Bytes bytes = out.finish();
  std::vector<uint8_t> datagram(bytes.data(), bytes.data() + bytes.size());
  if (packet.kind == PacketKind::probe) datagram.resize(std::max(packet.size, datagram.size()));
  return datagram;
}

Bytes flatten(const Message& message) {
  Writer sizes;
  sizes.varint(1 + message.attachments.size()).varint(message.head.size());
  for (const Bytes& attachment : message.attachments) sizes.varint(attachment.size());
  const Bytes head = sizes.finish();
  Bytes flat = Bytes::allocate(head.size() + message.size());
  uint8_t* to = flat.writable();
  const auto append = [&to](const Bytes& bytes) {
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  };
  append(head);
  append(message.head);
  for (const Bytes& attachment : message.attachments) append(attachment);
  return flat;
}

std::optional<Message> unflatten(const Bytes& flat) {
  Reader in(flat);
  const uint64_t count = in.varint();
  if (!in.ok() || count == 0 || count > kMaxPieces || count > in.left()) return std::nullopt;
  std::vector<uint64_t> sizes;
  uint64_t total = 0;
  for (uint64_t i = 0; i < count; ++i) {
    sizes.push_back(in.varint());
    if (!in.ok() || sizes.back() > flat.size()) return std::nullopt;
    total += sizes.back();
  }
  if (total != in.left()) return std::nullopt;
  Message message;
  size_t at = flat.size() - in.left();
  for (uint64_t i = 0; i < count; ++i) {
    Bytes piece = flat.slice(at, size_t(sizes[i]));
    at += size_t(sizes[i]);
    if (i == 0)
      message.head = std::move(piece);
    else
      message.attachments.push_back(std::move(piece));
  }
  if (message.head.empty()) return std::nullopt;
  return message;
}

Bytes pack(const DatagramOffer& offer) {
  return Writer()
      .raw(kOfferMagic.data(), kOfferMagic.size())
      .varint(offer.port)
      .u64(offer.key)
      .varint(offer.buffer)
      .finish();
}

bool is_datagram_offer(const Bytes& head) { return head.text().substr(0, 2) == kOfferMagic.substr(0, 2); }

std::optional<DatagramOffer> parse_datagram_offer(const Bytes& head) {
  if (head.text().substr(0, kOfferMagic.size()) != kOfferMagic) return std::nullopt;
  Reader in(head.text().substr(kOfferMagic.size()));
  DatagramOffer offer;
  const uint64_t port = in.varint();
  offer.port = uint16_t(port);
  offer.key = in.u64();
  offer.buffer = in.varint();
  if (!in.done() || port == 0 || port > 65535) return std::nullopt;
  return offer;
}

}  // namespace geomx
