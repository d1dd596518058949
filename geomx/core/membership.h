// A node's membership of one domain, seen from the node: asks its scheduler to be let in, keeps telling it that we live
// and notices when it doesn't, and says good-bye. Knows nothing of keys.
#pragma once
#include <functional>

#include "link.h"
#include "roster.h"

namespace geomx {

// Why a node is not in, or not any more.
enum class Fault { refused, timeout, failed };

class Membership {
 public:
  struct Events {
    std::function<void(const Roster&)> on_roster;    // we are in; everybody of the domain is known
    std::function<void(const Agreement&)> on_ready;  // the whole deployment is up
    std::function<void(Fault, const std::string&)> on_failed;
  };
  Membership(Reactor& reactor, Link& link, Transport& transport, std::string scheduler_address, std::string domain,
             uint64_t join_us, uint64_t death_us, Events events);

  // Gets in touch with the scheduler, so that each notices when the other fails or dies, also before this node can
  // join: `who` says what it is about to join as.
  void meet(const std::string& who);
  void join(const JoinRequest& request);
  void take(PeerId peer, const Frame& frame);
  void settle(const Agreement& agreement);  // a server tells its party
  void report_failure(const std::string& message);
  // The connection to the scheduler is over.
  void lose_scheduler(const std::string& why);
  void say_bye(std::function<void()> done);
  // Members connect to each other only where something is to be sent (link.h).
  void connect(NodeId to);
  bool is_joined() const { return is_joined_; }
  const Roster& roster() const { return roster_; }

 private:
  void take_roster(const Frame& frame);
  void beat();

  Reactor& reactor_;
  Link& link_;
  Transport& transport_;
  std::string scheduler_address_, domain_;
  uint64_t join_us_, death_us_;
  Events events_;
  PeerId scheduler_ = 0;
  Roster roster_;
  std::string who_;  // empty once we have asked to be let in
  bool is_joined_ = false, is_over_ = false;
  uint64_t last_heard_us_ = 0;  // 0: not yet
  std::function<void()> gone_;
};

}  // namespace geomx
