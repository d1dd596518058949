// The wire format, pinned byte by byte; and what isn't it is refused with a sentence, whatever was cut or flipped.
#include "core/wire.h"

#include <doctest/doctest.h>

#include <random>

#include "core/codec.h"

using namespace geomx;

namespace {

std::string hex(std::string_view bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string out;
  for (unsigned char c : bytes) {
    if (!out.empty()) out += ' ';
    out += digits[c >> 4];
    out += digits[c & 15];
  }
  return out;
}

std::string packed(Header header, std::vector<Frame> frames) {
  return hex(pack(header, std::move(frames)).head.text());
}

Frame with_body(Frame frame, std::string_view body) {
  frame.body = Bytes::copy(body);
  return frame;
}

Frame full_push() {
  Frame frame(FrameKind::push, 300, 2, 5);
  frame.flags = kDroppable;
  frame.codec = fourcc('R', 'A', 'W', ' ');
  frame.contributors = MemberSet::of(1);
  frame.contributors.insert(66);
  frame.priority = -3;
  frame.body = Bytes::copy("abcd");
  return frame;
}

Frame full_value() {
  Frame frame(FrameKind::value, 1, 0, 129);
  frame.flags = kEveryone;
  frame.codec = fourcc('F', 'P', '1', '6');
  frame.forward = {{3, 2}, {1, 1}, {300, 0}, {4, 0}};
  frame.body = Bytes::copy("xy");
  return frame;
}

std::string refusal(const Message& message) {
  Header header;
  std::vector<Frame> frames;
  return parse(message, &header, &frames).message();
}

std::string refusal(std::string_view head) { return refusal(Message{Bytes::copy(head), {}}); }

// Messages that between them have every kind of frame, field and body.
std::vector<Message> samples() {
  std::vector<Message> out;
  std::vector<Frame> kinds;
  for (int kind = 1; kind <= int(FrameKind::last); ++kind)
    kinds.push_back(with_body(Frame(FrameKind(kind), 7, 200, 3), kind % 3 ? "body" : ""));
  out.push_back(pack({member(4).packed(), 99}, kinds));
  out.push_back(pack({server(0).packed(), 0}, {full_push(), full_value()}));
  Frame large(FrameKind::push, 1, 1, 1);
  large.body = Bytes::allocate(kInlineBytes + 1);
  std::memset(large.body.writable(), 'z', large.body.size());
  out.push_back(pack({kNobody, 1}, {full_value(), large, full_push(), large}));
  out.push_back(pack({}, {}));
  return out;
}

}  // namespace

TEST_CASE("a message's bytes are these") {
  CHECK(packed({member(1).packed(), 300}, {}) == "47 58 01 00 06 ac 02 00");
  CHECK(packed({kNobody, 0}, {Frame(FrameKind::heartbeat)}) == "47 58 01 00 ff ff ff ff 0f 00 01 07 00 00 00 00 00");
  CHECK(packed({server(2).packed(), 1}, {full_push()}) ==
        "47 58 01 00 09 01 01 15 8e ac 02 02 05 52 41 57 20 02 02 04 05 04 61 62 63 64");
  CHECK(packed({server(0).packed(), 0}, {full_value()}) ==
        "47 58 01 00 01 00 01 17 62 01 00 81 01 46 50 31 36 04 03 02 01 01 ac 02 00 04 00 02 78 79");
}

TEST_CASE("each kind of frame has its number for ever") {
  const std::vector<std::pair<FrameKind, int>> kinds{
      {FrameKind::ack, 1},         {FrameKind::join, 2},        {FrameKind::refuse, 3},
      {FrameKind::roster, 4},      {FrameKind::settled, 5},     {FrameKind::ready, 6},
      {FrameKind::heartbeat, 7},   {FrameKind::fail, 8},        {FrameKind::bye, 9},
      {FrameKind::declare, 10},    {FrameKind::configure, 11},  {FrameKind::seal, 12},
      {FrameKind::spec, 13},       {FrameKind::configured, 14}, {FrameKind::sealed, 15},
      {FrameKind::taken, 16},      {FrameKind::barrier, 17},    {FrameKind::barrier_done, 18},
      {FrameKind::report, 19},     {FrameKind::waiting, 20},    {FrameKind::push, 21},
      {FrameKind::end, 22},        {FrameKind::value, 23},      {FrameKind::pull, 24},
      {FrameKind::init, 25},       {FrameKind::overlap, 26},    {FrameKind::leave, 27},
      {FrameKind::leave_taken, 28}};
  for (const auto& [kind, number] : kinds) CHECK(int(kind) == number);
}

TEST_CASE("what was packed is parsed again, field by field") {
  Frame large(FrameKind::value, 9, 8, 7);
  large.body = Bytes::allocate(100'000);
  std::memset(large.body.writable(), 'q', large.body.size());
  const Message message = pack({member(70).packed(), uint64_t(1) << 63}, {full_push(), large, full_value()});
  REQUIRE(message.attachments.size() == 1);
  CHECK(message.attachments[0].data() == large.body.data());  // large bodies aren't copied
  Header header;
  std::vector<Frame> frames;
  REQUIRE(parse(message, &header, &frames).message() == "");
  CHECK(header.from == member(70).packed());
  CHECK(header.id == uint64_t(1) << 63);
  REQUIRE(frames.size() == 3);
  CHECK(frames[0].kind == FrameKind::push);
  CHECK(frames[0].key == 300);
  CHECK(frames[0].part == 2);
  CHECK(frames[0].round == 5);
  CHECK(frames[0].has(kDroppable));
  CHECK(frames[0].codec == fourcc('R', 'A', 'W', ' '));
  CHECK(frames[0].contributors.ranks() == std::vector<uint32_t>{1, 66});
  CHECK(frames[0].priority == -3);
  CHECK(frames[0].body.text() == "abcd");
  CHECK(frames[1].body.data() == large.body.data());
  CHECK(frames[2].has(kEveryone));
  CHECK(frames[2].priority == 0);
  CHECK(frames[2].contributors.empty());
  CHECK(frames[2].forward == Route{{3, 2}, {1, 1}, {300, 0}, {4, 0}});
}

TEST_CASE("a body at the limit stays in the head, one byte more is attached") {
  for (size_t size : {kInlineBytes, kInlineBytes + 1}) {
    Frame frame(FrameKind::push);
    frame.body = Bytes::allocate(size);
    std::memset(frame.body.writable(), 0, size);
    CHECK(pack({}, {frame}).attachments.size() == (size > kInlineBytes ? 1 : 0));
  }
}

TEST_CASE("what framing costs is what frame_overhead says") {
  for (const Message& message : samples()) {
    Header header;
    std::vector<Frame> frames;
    REQUIRE(parse(message, &header, &frames).ok());
    size_t bytes = pack(header, {}).size() - 1 + Writer().varint(frames.size()).size();
    for (const Frame& frame : frames) bytes += frame_overhead(frame) + frame.body.size();
    CHECK(bytes == message.size());
  }
}

TEST_CASE("refusals say what is wrong") {
  const std::string head(pack({}, {full_push()}).head.text());
  CHECK(refusal("") == "malformed message: it does not begin with GX");
  CHECK(refusal("XX") == "malformed message: it does not begin with GX");
  CHECK(refusal(std::string("GX\x02") + head.substr(3)) == "malformed message: expected version 1 but got 2");
  CHECK(refusal(head.substr(0, 6)) == "malformed message: bad header");
  CHECK(refusal(head.substr(0, head.size() - 1)) == "malformed message: a body ends early");
  CHECK(refusal(head.substr(0, 16)) == "malformed message: a frame ends early");
  CHECK(refusal(head + "x") == "malformed message: bytes after the last frame");
  CHECK(refusal(std::string("GX\x01\0\0\0\x01\x3f\0\0\0\0\0", 13)) == "malformed message: unknown kind of frame 63");
  CHECK(refusal(std::string("GX\x01\0\0\0\xff\xff\xff\x7f", 10)) == "malformed message: bad header");
  Frame large(FrameKind::push);
  large.body = Bytes::allocate(kInlineBytes + 1);
  std::memset(large.body.writable(), 0, large.body.size());
  Message message = pack({}, {large});
  message.attachments.clear();
  CHECK(refusal(message) == "malformed message: an attachment is missing");
  message.attachments.push_back(Bytes::copy("short"));
  CHECK(refusal(message) == "malformed message: expected an attachment of 2049 bytes but got 5");
  message = pack({}, {full_push()});
  message.attachments.push_back(Bytes::copy("extra"));
  CHECK(refusal(message) == "malformed message: more attachments than frames that want one");
}

TEST_CASE("a varint of more than 64 bits, and one of more than 32 where 32 are wanted, are refused") {
  const std::string eleven = std::string(10, '\xff') + "\x01", ten = std::string(9, '\xff') + "\x01";
  Reader wide(eleven);
  CHECK(wide.varint() == 0);
  CHECK_FALSE(wide.ok());
  Reader most(ten);
  CHECK(most.varint() == ~uint64_t(0));
  CHECK(most.done());
  Writer writer;
  writer.varint(uint64_t(1) << 32);
  const Bytes bytes = writer.finish();
  Reader narrow(bytes);
  CHECK(narrow.varint32() == 0);
  CHECK_FALSE(narrow.ok());
}

TEST_CASE("every truncation is refused") {
  for (const Message& message : samples()) {
    for (size_t size = 0; size < message.head.size(); ++size)
      CHECK(refusal(Message{Bytes::copy(message.head.data(), size), message.attachments}) != "");
  }
}

TEST_CASE("whatever single byte is flipped, a message is refused or parsed, and what is parsed can be packed") {
  for (const Message& message : samples()) {
    const std::string whole(message.head.text());
    for (size_t at = 0; at < whole.size(); ++at) {
      for (int value = 0; value < 256; ++value) {
        std::string broken = whole;
        broken[at] = char(value);
        Header header;
        std::vector<Frame> frames;
        const Message flipped{Bytes::copy(broken), message.attachments};
        if (parse(flipped, &header, &frames).ok()) CHECK(pack(header, frames).head.size() > 0);
      }
    }
  }
}

TEST_CASE("random bytes behind a good beginning never do harm") {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = "GX\x01";
    const size_t size = random() % 60;
    for (size_t j = 0; j < size; ++j) bytes += char(random() % (j < 8 ? 30 : 256));
    Header header;
    std::vector<Frame> frames;
    (void)parse(Message{Bytes::copy(bytes), {}}, &header, &frames);
  }
}

TEST_CASE("sets of members travel whatever their size") {
  for (uint32_t rank : {0u, 1u, 63u, 64u, 65u, 1000u, 65535u}) {
    MemberSet set = MemberSet::of(rank);
    set.insert(5);
    const Bytes bytes = Writer().members(set).finish();
    Reader in(bytes);
    CHECK(in.members() == set);
    CHECK(in.done());
  }
  const Bytes many = Writer().varint(kMaxMemberWords + 1).finish();
  Reader in(many);
  CHECK(in.members().empty());
  CHECK_FALSE(in.ok());
}
