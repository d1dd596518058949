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
    std::string name, authority;
  };
  using Planner = std::function<Status(const KeySpec& tensor, uint32_t num_global_servers, Plan* plan)>;

  Worker(Side& side, Client& client, Directory& directory, Options options, Planner planner);

  void init(const std::vector<Tensor>& tensors, const TicketPtr& ticket);
  void push(const std::vector<Tensor>& tensors, const TicketPtr& ticket);
  void pull(const std::vector<Tensor>& tensors, const TicketPtr& ticket);
  void leave(const TicketPtr& ticket);
  void fail(const std::string& why);

  void on_spec(const Key& key);
  void on_sealed();
  bool is_sealed() const { return is_sealed_; }
  // Whom calls that have not reached a server wait for, in words; empty if there are none.
  std::string waits_for() const;

 private:
  struct Pull {
    Tensor out;
    uint32_t min_round = 0, parts_missing = 0;
    std::vector<bool> is_filled;
    TicketPtr ticket;
  };
  struct Kept {
    Frame frame;                  // the newest value, until it has been pulled
    uint32_t round = 0;
    bool is_here = false;
  };
  using Operation = std::function<void()>;
  struct Waiting {
    bool needs_seal;
    Operation run;
    TicketPtr ticket;
  };
  struct State {
    const Key* key = nullptr;
    std::string name;
    uint32_t pushed = 0;          // rounds
    bool is_declared = false;     // we have asked for it
    std::deque<Waiting> waiting;  // in the order of the calls
    std::vector<Kept> parts;
    std::list<Pull> pulls;
    Bytes initial;                // the authority's, raw, until the key is decided
    std::vector<TicketPtr> inits;
  };

  State& state_of(const std::string& name);
  void declare(State& state, const Tensor& tensor, bool has_initial);
  void enqueue(State& state, Waiting operation);
  std::string wait_text(const State& state) const;
  void give_up_unknown_keys();
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
  std::unordered_map<uint64_t, State> states_;
  bool is_sealed_ = false, has_asked_for_seal_ = false, is_leaving_ = false;
  TicketPtr leaving_;
  std::string failure_;
  std::vector<std::weak_ptr<Ticket>> tickets_;  // all that are under way, for a failure
};

}  // namespace geomx
