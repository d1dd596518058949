// Packing and parsing of messages: see wire.h for the layout.
#include "wire.h"

namespace geomx {
namespace {

size_t varint_size(uint64_t v) {
  size_t size = 1;
  while (v >>= 7) ++size;
  return size;
}

uint32_t zigzag(int32_t v) { return uint32_t(v) << 1 ^ uint32_t(v >> 31); }
int32_t unzigzag(uint32_t v) { return int32_t(v >> 1 ^ (~(v & 1) + 1)); }

void write_frame(Writer& out, Frame& frame, std::vector<Bytes>* attachments) {
  const bool attach = frame.body.size() > kInlineBytes;
  uint8_t flags = frame.flags & uint8_t(~(kAttached | kHasCodec | kHasContributors | kForward | kHasPriority));
  if (attach) flags |= kAttached;
  if (frame.codec != 0) flags |= kHasCodec;
  if (!frame.contributors.empty()) flags |= kHasContributors;
  if (!frame.forward.empty()) flags |= kForward;
  if (frame.priority != 0) flags |= kHasPriority;
  out.u8(uint8_t(frame.kind)).u8(flags).varint(frame.key).varint(frame.part).varint(frame.round);
  if (flags & kHasCodec) out.u32(frame.codec);
  if (flags & kHasContributors) out.members(frame.contributors);
  if (flags & kForward) out.route(frame.forward);
  if (flags & kHasPriority) out.varint(zigzag(frame.priority));
  out.varint(frame.body.size());
  if (attach)
    attachments->push_back(std::move(frame.body));
  else
    out.raw(frame.body.data(), frame.body.size());
}

Status malformed(const std::string& what) { return Status::error("malformed message: " + what); }

// One frame from the head; its body from there or from the next attachment.
Status read_frame(Reader& in, const Message& message, size_t* next_attachment, Frame* frame) {
  const uint8_t kind = in.u8();
  frame->flags = in.u8();
  frame->key = in.varint32();
  frame->part = in.varint32();
  frame->round = in.varint32();
  if (frame->flags & kHasCodec) frame->codec = in.u32();
  if (frame->flags & kHasContributors) frame->contributors = in.members();
  if (frame->flags & kForward) frame->forward = in.route();
  if (frame->flags & kHasPriority) frame->priority = unzigzag(in.varint32());
  const uint64_t size = in.varint();
  if (!in.ok()) return malformed("a frame ends early");
  if (kind < uint8_t(FrameKind::ack) || kind > uint8_t(FrameKind::last))
    return malformed("unknown kind of frame " + std::to_string(kind));
  frame->kind = FrameKind(kind);
  if (frame->flags & kAttached) {
    if (*next_attachment >= message.attachments.size()) return malformed("an attachment is missing");
    frame->body = message.attachments[(*next_attachment)++];
    if (frame->body.size() != size)
      return malformed("expected an attachment of " + std::to_string(size) + " bytes but got " +
                       std::to_string(frame->body.size()));
    return {};
  }
  if (size > in.left()) return malformed("a body ends early");
  const std::string_view body = in.view(size);
  frame->body = message.head.slice(size_t(reinterpret_cast<const uint8_t*>(body.data()) - message.head.data()), size);
  return {};
}

}  // namespace

const char* name_of(FrameKind kind) {
  static const char* const names[] = {"?",           "ack",    "join",  "refuse",  "roster",       "settled", "ready",
                                      "heartbeat",   "fail",   "bye",   "declare", "configure",    "seal",    "spec",
                                      "configured",  "sealed", "taken", "barrier", "barrier_done", "report",  "waiting",
                                      "push",        "end",    "value", "pull",    "init",         "overlap", "leave",
                                      "leave_taken", "overlay"};
  static_assert(sizeof(names) / sizeof(names[0]) == size_t(FrameKind::last) + 1);
  return kind <= FrameKind::last ? names[size_t(kind)] : "?";
}

Writer& Writer::varint(uint64_t v) {
  for (; v >= 0x80; v >>= 7) out_.push_back(char(v | 0x80));
  out_.push_back(char(v));
  return *this;
}

Writer& Writer::route(const Route& route) {
  varint(route.size());
  for (const Step& step : route) varint(step.rank).varint(step.below);
  return *this;
}

Writer& Writer::members(const MemberSet& set) {
  size_t words = set.num_words();
  while (words > 0 && set.word_at(words - 1) == 0) --words;
  varint(words);
  for (size_t i = 0; i < words; ++i) varint(set.word_at(i));
  return *this;
}

void Reader::raw(void* out, size_t size) {
  if (!ok_ || size > size_t(end_ - at_)) {
    ok_ = false;
    return;
  }
  std::memcpy(out, at_, size);
  at_ += size;
}

uint64_t Reader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = u8();
    if (!ok_) return 0;
    if (shift == 63 && byte > 1) break;
    value |= uint64_t(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return value;
  }
  ok_ = false;
  return 0;
}

uint32_t Reader::varint32() {
  const uint64_t value = varint();
  if (value > 0xffffffffu) ok_ = false;
  return ok_ ? uint32_t(value) : 0;
}

std::string_view Reader::view(size_t size) {
  if (!ok_ || size > size_t(end_ - at_)) {
    ok_ = false;
    return {};
  }
  const std::string_view out(at_, size);
  at_ += size;
  return out;
}

std::string Reader::text(size_t max) {
  const uint64_t size = varint();
  if (size > max) ok_ = false;
  return std::string(ok_ ? view(size_t(size)) : std::string_view());
}

MemberSet Reader::members() {
  MemberSet set;
  const uint64_t words = varint();
  if (words > kMaxMemberWords) ok_ = false;
  for (uint64_t i = 0; ok_ && i < words; ++i) set.word(size_t(i)) = varint();
  return set;
}

// Every step's tree lies within the route, and within the tree that the step is in.
Route Reader::route() {
  Route route;
  const uint64_t count = varint();
  if (count > left()) ok_ = false;
  std::vector<uint64_t> ends;  // of the trees that the next step is in
  for (uint64_t i = 0; ok_ && i < count; ++i) {
    Step step;
    step.rank = varint32();
    step.below = varint32();
    while (!ends.empty() && ends.back() <= i) ends.pop_back();
    const uint64_t end = i + 1 + step.below;
    if (end > (ends.empty() ? count : ends.back())) ok_ = false;
    ends.push_back(end);
    route.push_back(step);
  }
  return ok_ ? route : Route();
}

Message pack(const Header& header, std::vector<Frame> frames) {
  GX_CHECK(frames.size() <= kMaxFrames, "a message has more frames than its receiver takes");
  Message message;
  Writer out;
  out.u8('G')
      .u8('X')
      .u8(kWireVersion)
      .u8(header.is_ack_awaited)
      .varint(header.from)
      .varint(header.id)
      .varint(frames.size());
  for (Frame& frame : frames) write_frame(out, frame, &message.attachments);
  message.head = out.finish();
  return message;
}

Status parse(const Message& message, Header* header, std::vector<Frame>* frames) {
  Reader in(message.head);
  if (in.u8() != 'G' || in.u8() != 'X') return malformed("it does not begin with GX");
  const uint8_t version = in.u8();
  if (version != kWireVersion)
    return malformed("expected version " + std::to_string(kWireVersion) + " but got " + std::to_string(version));
  const uint8_t flags = in.u8();
  if (flags > 1) return malformed("bad header");
  header->is_ack_awaited = flags != 0;
  header->from = in.varint32();
  header->id = in.varint();
  const uint64_t count = in.varint();
  if (!in.ok() || count > kMaxFrames) return malformed("bad header");
  frames->clear();
  frames->reserve(size_t(std::min<uint64_t>(count, in.left())));
  size_t next_attachment = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Frame frame;
    if (Status status = read_frame(in, message, &next_attachment, &frame); !status.ok()) return status;
    frames->push_back(std::move(frame));
  }
  if (!in.done()) return malformed("bytes after the last frame");
  if (next_attachment != message.attachments.size()) return malformed("more attachments than frames that want one");
  return {};
}

size_t frame_overhead(const Frame& frame) {
  size_t size = 2 + varint_size(frame.key) + varint_size(frame.part) + varint_size(frame.round) +
                varint_size(frame.body.size()) + (frame.codec ? 4 : 0);
  if (!frame.contributors.empty()) size += Writer().members(frame.contributors).size();
  if (!frame.forward.empty()) size += Writer().route(frame.forward).size();
  if (frame.priority != 0) size += varint_size(zigzag(frame.priority));
  return size;
}

}  // namespace geomx
