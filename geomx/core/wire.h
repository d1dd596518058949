// The wire format: a message is a header and frames. Small bodies stand in the message's head, large ones travel as
// attachments so that they are never copied.
//
//   head    = magic "GX" | version u8 | flags u8 | from varint | id varint | num_frames varint | frame*
//   frame   = kind u8 | flags u8 | key varint | part varint | round varint
//             | [codec u32] | [contributors] | [forward] | [priority varint, zigzag] | size varint
//             | [bytes, unless attached]
//   set     = words varint | varint each
//   forward = steps varint | (rank varint, below varint) each
//
// Little-endian. Parsing is validation: every length and count is checked before use, and a message that isn't
// exactly this is refused with a sentence. Owns nothing; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "buffer.h"
#include "member_set.h"
#include "status.h"
#include "transport.h"

namespace geomx {

constexpr uint8_t kWireVersion = 1;
constexpr size_t kInlineBytes = 2048;           // bodies above this are attachments
constexpr uint32_t kMaxFrames = 1u << 16;       // of one message
constexpr uint32_t kMaxMemberWords = 1u << 10;  // 65,536 members

// Who a node is in one domain.
enum class Role : uint8_t { scheduler = 0, server = 1, member = 2 };
struct NodeId {
  Role role = Role::scheduler;
  uint32_t rank = 0;
  uint32_t packed() const { return rank << 2 | uint32_t(role); }
  bool operator==(const NodeId& other) const { return packed() == other.packed(); }
  bool operator!=(const NodeId& other) const { return !(*this == other); }
  bool operator<(const NodeId& other) const { return packed() < other.packed(); }
};
inline NodeId server(uint32_t rank) { return {Role::server, rank}; }
inline NodeId member(uint32_t rank) { return {Role::member, rank}; }
inline NodeId scheduler() { return {Role::scheduler, 0}; }
constexpr uint32_t kNobody = 0xffffffff;  // `from` before a rank was assigned

enum class FrameKind : uint8_t {
  ack = 1,  // messages taken: their credit comes back
  // membership, with the domain's scheduler
  join,     // who I am; answered by roster or refuse
  refuse,   // a sentence: the join, or a request, can't be granted
  roster,   // everybody of the domain, and which of them is you
  settled,  // a server tells its party's scheduler what the whole deployment agreed on
  ready,    // the whole deployment is up, with what it agreed on
  heartbeat,
  fail,
  bye,
  // directory: requests go up to the first server of the WAN, notices come down from it to everybody
  declare,
  configure,
  seal,  // requests
  spec,
  configured,
  sealed,  // notices
  taken,   // a server has the notice
  barrier,
  barrier_done,
  report,
  waiting,  // waiting: whom a server waits for, in words
  // rounds
  push,     // a contribution, or several that were merged
  end,      // a sender's round of a shard is complete; body: which of its parts may be missing
  value,    // a closed part; contributors: who is in it
  pull,     // asks for a part of at least this round
  init,     // the authority's initial value of a part
  overlap,  // a contribution was refused: contributors says who is already in, the others send alone
  leave,
  leave_taken,
  overlay,  // an overlay's own words, between members and servers; about a part where it says so
  last = overlay,
};
const char* name_of(FrameKind kind);

enum FrameFlag : uint8_t {
  kAttached = 1,  // the body is the message's next attachment
  kHasCodec = 2,
  kHasContributors = 4,
  kDroppable = 8,
  kInit = 16,      // carries, answers or asks for an initial value: counted apart
  kForward = 32,   // value: pass it on as `forward` says
  kEveryone = 64,  // value: whoever was expected is in it; `contributors` is left out
  kHasPriority = 128,
};

// Members that a value still goes to, as trees in preorder: each is followed by the `below` members that it passes the
// value on to.
struct Step {
  uint32_t rank = 0, below = 0;
  bool operator==(const Step& o) const { return rank == o.rank && below == o.below; }
};
using Route = std::vector<Step>;

struct Frame {
  FrameKind kind = FrameKind::ack;
  uint8_t flags = 0;
  uint32_t key = 0, part = 0, round = 0;
  uint32_t codec = 0;
  int32_t priority = 0;  // that its push asked for, where schedulers rank by it
  MemberSet contributors;
  Route forward;
  Bytes body;

  Frame() = default;
  explicit Frame(FrameKind k) : kind(k) {}
  Frame(FrameKind k, uint32_t key_, uint32_t part_, uint32_t round_) : kind(k), key(key_), part(part_), round(round_) {}
  bool has(FrameFlag flag) const { return flags & flag; }
};

// Control bodies: varints and length-prefixed text.
class Writer {
 public:
  Writer& u8(uint8_t v) {
    out_.push_back(char(v));
    return *this;
  }
  Writer& u32(uint32_t v) { return raw(&v, 4); }
  Writer& u64(uint64_t v) { return raw(&v, 8); }
  Writer& f64(double v) { return raw(&v, 8); }
  Writer& varint(uint64_t v);
  Writer& text(std::string_view v) {
    varint(v.size());
    out_.append(v);
    return *this;
  }
  Writer& members(const MemberSet& set);
  Writer& route(const Route& route);
  Writer& raw(const void* data, size_t size) {
    out_.append(static_cast<const char*>(data), size);
    return *this;
  }
  size_t size() const { return out_.size(); }
  Bytes finish() const { return Bytes::copy(out_); }

 private:
  std::string out_;
};

// Reads stop at the first fault: ok() is false from then on and every further read gives zero.
class Reader {
 public:
  explicit Reader(std::string_view data) : at_(data.data()), end_(data.data() + data.size()) {}
  explicit Reader(const Bytes& data) : Reader(data.text()) {}
  bool ok() const { return ok_; }
  bool done() const { return ok_ && at_ == end_; }
  size_t left() const { return ok_ ? size_t(end_ - at_) : 0; }
  uint8_t u8() {
    uint8_t v = 0;
    raw(&v, 1);
    return v;
  }
  uint32_t u32() {
    uint32_t v = 0;
    raw(&v, 4);
    return v;
  }
  uint64_t u64() {
    uint64_t v = 0;
    raw(&v, 8);
    return v;
  }
  double f64() {
    double v = 0;
    raw(&v, 8);
    return v;
  }
  uint64_t varint();
  uint32_t varint32();
  std::string_view view(size_t size);
  std::string text(size_t max = 1 << 20);
  MemberSet members();
  Route route();

 private:
  void raw(void* out, size_t size);
  const char* at_;
  const char* end_;
  bool ok_ = true;
};

struct Header {
  uint32_t from = kNobody;  // NodeId::packed
  uint64_t id = 0;          // 0: not acknowledged
  // The sender will soon lack the credit: acknowledge at once. Others' acknowledgements may wait a little for a message
  // that takes them along.
  bool is_ack_awaited = false;
};

Message pack(const Header& header, std::vector<Frame> frames);
Status parse(const Message& message, Header* header, std::vector<Frame>* frames);
// Bytes of a frame in its message, body excluded: what framing costs.
size_t frame_overhead(const Frame& frame);

}  // namespace geomx
