// A domain's scheduler: lets nodes in, gives them ranks, compares what they set explicitly, watches that they live and
// tells everybody when one doesn't. Carries no values.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "link.h"
#include "roster.h"

namespace geomx {

struct RegistryOptions {
  Tier tier = Tier::lan;
  std::string domain;                         // "party A", "the WAN", for messages
  uint32_t num_servers = 0, num_members = 0;  // 0: whatever the nodes say
  uint64_t join_us = 0, death_us = 0;
  Settings settings;  // set explicitly on the scheduler itself
};

class Registry {
 public:
  Registry(Reactor& reactor, Link& link, RegistryOptions options, std::function<void(int, const std::string&)> log);

  void start();
  void take(NodeId from, PeerId peer, const Frame& frame);
  void fail(const std::string& message);
  // A connection is over: a node that has not said good-bye is dead.
  void lose(PeerId peer);
  // All nodes have said good-bye, or the run has failed.
  void on_done(std::function<void(const Status&)> done) { done_ = std::move(done); }

 private:
  struct Node {
    JoinRequest request;
    PeerId peer = 0;
    NodeId id;
    std::string name;
    uint64_t last_heard_us = 0;
    bool has_left = false;
  };
  // A node that is not ready to join yet, but wants to know whether we live.
  struct Visitor {
    std::string who;
    uint64_t last_heard_us = 0;
  };
  void take_join(PeerId peer, const Frame& frame);
  void take_visit(PeerId peer, const Frame& frame);
  Status adopt_counts(const JoinRequest& request, const std::string& who);
  std::optional<std::string> reason_to_refuse(const JoinRequest& request) const;
  uint32_t count(Role role) const;
  bool is_complete() const;
  void complete();
  Status give_ranks(Role role);
  Status judge_central_party();
  Status unite_settings(Settings* all) const;
  Roster make_roster(const Settings& settings) const;
  void broadcast(const Frame& frame);
  void refuse_all(const std::string& why, bool is_timeout = false);
  void end(Frame last_word, const std::string& why);
  void call_roll(bool is_last);
  std::string title_of(Role role) const;
  std::string missing_text() const;
  void watch();
  std::string describe(const JoinRequest& request) const;
  std::string name_of(const Node& node) const;
  Node* find(PeerId peer);

  Reactor& reactor_;
  Link& link_;
  RegistryOptions options_;
  std::function<void(int, const std::string&)> log_;
  std::function<void(const Status&)> done_;
  std::vector<Node> nodes_;
  std::map<PeerId, Visitor> visitors_;  // until all are there
  bool is_ready_ = false, is_over_ = false;
  Frame last_word_{FrameKind::fail};  // once it is over
};

}  // namespace geomx
