// Room 1, framework-free: a worker's pushes and pulls of whole tensors, in the order of the calls on each key. Reads
// the caller's buffers in place and writes values straight into them. Lives on the node's reactor.
#pragma once
#include <deque>
#include <functional>
#include <list>
#include <unordered_map>
#include <unordered_set>

#include "client.h"
#include "directory.h"
#include "per_key.h"
#include "ticket.h"

namespace geomx {

// A caller's array.
struct Tensor {
  std::string name;
  std::vector<uint64_t> shape;
  DType dtype = DType::f32;
  void* data = nullptr;
  int priority = 0;

  uint64_t length() const {
    uint64_t total = 1;
    for (uint64_t dim : shape) total *= dim;
    return total;
  }
  size_t num_bytes() const { return size_t(length()) * size_of(dtype); }
};

struct Plan {
  std::vector<Shard> shards;
  uint64_t part_length = 0;
};

class Worker {
 public:
  struct Options {
    bool is_authority = false, is_observer = false;
    uint32_t num_global_servers = 1;
    std::string name;
    std::string authority;  // who decides, in words
  };
  using Planner = std::function<Status(const KeySpec& tensor, uint32_t num_global_servers, Plan* plan)>;

  Worker(Side& side, Client& client, Directory& directory, Options options, Planner planner);

  void init(const std::vector<Tensor>& tensors, const TicketPtr& ticket);
  void push(const std::vector<Tensor>& tensors, const TicketPtr& ticket);
  void pull(const std::vector<Tensor>& tensors, const TicketPtr& ticket);
  void leave(const TicketPtr& ticket);
  void fail(const std::string& why);
  // A call that nobody waits for any more: it won't write to its caller's memory, nor hold up a leave.
  void cancel(const TicketPtr& ticket, const std::string& why);
  // Those whose deadline is past; `why(ticket)` says what each waited for.
  void expire(uint64_t now_us, const std::function<std::string(const Ticket&)>& why);
  // What a call still needs before anything of it can be sent; empty if nothing.
  std::string blocked_by(const Ticket& ticket) const;

  void on_spec(const Key& key);
  void on_sealed();
  bool is_sealed() const { return is_sealed_; }

 private:
  struct Pull {
    Tensor out;
    uint32_t min_round = 0, parts_missing = 0;
    std::vector<bool> is_filled;
    TicketPtr ticket;
  };
  struct Kept {
    Frame frame;  // the newest value, until it has been pulled
    uint32_t round = 0;
    bool is_here = false;
  };
  using Operation = std::function<void()>;
  struct Waiting {
    bool needs_seal;
    TicketPtr ticket;
    Operation operation;
  };
  struct State {
    std::string name;
    const Key* key = nullptr;
    uint32_t pushed = 0;       // rounds
    bool is_declared = false;  // we have asked for it
    std::deque<Waiting> waiting;
    std::vector<Kept> parts;
    std::list<Pull> pulls;
    Bytes initial;  // the authority's, raw, until the key is decided
    std::vector<TicketPtr> inits;
  };

  State& state_of(const std::string& name);
  void found(State& state, const Key& key);
  void declare(State& state, const Tensor& tensor, bool has_initial);
  void enqueue(State& state, bool needs_seal, const TicketPtr& ticket, Operation operation);
  void run_waiting(State& state);
  void seal();
  Status check(const State& state, const Tensor& tensor, bool is_declaration = false) const;
  void push_now(State& state, const Tensor& tensor, const TicketPtr& ticket);
  void pull_now(State& state, const Tensor& tensor, const TicketPtr& ticket);
  void finish_init(State& state);
  void take_value(const Frame& frame);
  bool fill(const Key& key, Pull& pull, const Frame& frame);
  void leave_if_idle();
  void track(const TicketPtr& ticket);

  Side& side_;
  Client& client_;
  Directory& directory_;
  Options options_;
  Planner planner_;
  std::unordered_map<uint64_t, State> states_;  // by identity of the name
  PerKey<State*> by_index_;
  bool is_sealed_ = false, has_asked_for_seal_ = false, is_leaving_ = false;
  TicketPtr leaving_;
  std::string failure_;
  std::vector<std::weak_ptr<Ticket>> tickets_;  // all that are under way, for a failure
};

}  // namespace geomx
