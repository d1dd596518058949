// Any bytes as datagrams that reach one end of a flow that is under way: cut at 0xfffe, each goes through the parser,
// and what it lets through to the flow. Nothing but counters may come of it; what is delivered is a whole message.
#include "core/datagram_flow.h"

using namespace geomx;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint64_t now_us = 1'000'000;
  size_t delivered = 0;
  DatagramFlow flow(
      1, 1472,
      [](uint8_t, const std::vector<uint8_t>& datagram) {
        GX_CHECK(parse_packet(datagram.data(), datagram.size()), "our own");
      },
      [&](uint8_t, Message message) { delivered += message.size(); });
  for (int i = 0; i < 8; ++i)
    flow.send(uint8_t(i % 3), Message{Bytes::copy("message"), {Bytes::allocate(3000)}}, now_us);
  flow.run(now_us);
  const auto take = [&](const uint8_t* from, size_t length) {
    const std::optional<Packet> packet = parse_packet(from, length);
    if (!packet) return;
    if (packet->kind == PacketKind::data) flow.take_data(*packet, now_us, now_us);
    if (packet->kind == PacketKind::ack) flow.take_ack(*packet, now_us, now_us);
    now_us += 10'000;
    flow.run(now_us);
  };
  size_t begin = 0;
  for (size_t i = 0; i + 1 < size; ++i) {
    if (data[i] != 0xff || data[i + 1] != 0xfe) continue;
    take(data + begin, i - begin);
    begin = i + 2;
  }
  take(data + begin, size - begin);
  (void)parse_datagram_offer(Bytes::copy(data, size));
  (void)unflatten(Bytes::copy(data, size));
  for (int i = 0; i < 20; ++i) flow.run(now_us += 500'000);
  (void)flow.take_unacknowledged();
  GX_CHECK(flow.is_idle(), "nothing is left");
  return 0;
}
