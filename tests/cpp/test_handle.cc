// Real nodes as other threads use them: loops, ZeroMQ over loopback, tickets, calls that wait. What the thread
// sanitizer is to see.
#include "core/handle.h"

#include <doctest/doctest.h>

#include <thread>

using namespace geomx;

namespace {

constexpr double kPatience = 30;  // seconds; sanitizers are slow

DomainOptions flat(uint16_t port, uint32_t members) {
  DomainOptions out;
  out.is_given = true;
  out.scheduler_host = "127.0.0.1";
  out.scheduler_port = port;
  out.num_servers = 1;
  out.num_members = members;
  return out;
}

std::unique_ptr<Handle> make(NodeRole role, DomainOptions wan, const std::string& party, bool is_memory_shared) {
  NodeOptions options;
  options.role = role;
  options.party = party;
  options.wan = wan;
  options.host = "127.0.0.1";
  ZmqOptions transport;
  transport.token = "test";
  transport.is_memory_shared = is_memory_shared;
  auto handle = std::make_unique<Handle>(options, transport, kPatience, kPatience);
  handle->hooks().plan = [](const KeySpec& spec, uint32_t, Plan* plan) {
    plan->shards = {{0, 0, spec.length()}};
    plan->part_length = 1000;
    return Status();
  };
  handle->make_node();
  return handle;
}

Tensor tensor(const std::string& name, std::vector<float>& values) {
  Tensor out;
  out.name = name;
  out.shape = {values.size()};
  out.data = values.data();
  return out;
}

// One tier: a scheduler, a server and workers, each with a thread of its own.
struct Deployment {
  Deployment(uint32_t num_workers, bool is_memory_shared) {
    scheduler = make(NodeRole::scheduler, flat(0, num_workers), "", is_memory_shared);
    REQUIRE(scheduler->start({}).message == "");
    const std::string address = scheduler->ask<std::string>([](Node& n) { return n.address(Tier::wan); });
    const DomainOptions wan = flat(uint16_t(std::stoul(address.substr(address.rfind(':') + 1))), num_workers);
    server = make(NodeRole::global_server, wan, "", is_memory_shared);
    for (uint32_t w = 0; w < num_workers; ++w)
      workers.push_back(make(NodeRole::worker, wan, "p" + std::to_string(w), is_memory_shared));
    serve(*scheduler, false);
    serve(*server, true);
  }
  void serve(Handle& handle, bool starts) {
    serving.emplace_back([&handle, starts] {
      if (starts) CHECK(handle.start({}).message == "");
      handle.serve({});
    });
  }
  // On every worker at once, started.
  void run(const std::function<void(Handle&, uint32_t)>& work) {
    std::vector<std::thread> threads;
    for (uint32_t w = 0; w < workers.size(); ++w) threads.emplace_back([&, w] { work(*workers[w], w); });
    for (std::thread& thread : threads) thread.join();
  }
  ~Deployment() {
    for (auto& worker : workers) worker->close();
    if (!has_left) server->fail("the test is over");
    for (std::thread& thread : serving) thread.join();
    server->close();
    scheduler->close();
  }

  std::unique_ptr<Handle> scheduler, server;
  std::vector<std::unique_ptr<Handle>> workers;
  std::vector<std::thread> serving;
  bool has_left = false;
};

std::string wait(Handle& handle, const std::string& text,
                 const std::function<void(Node&, const TicketPtr&)>& operation) {
  const auto ticket = std::make_shared<Ticket>(text);
  handle.submit(ticket, [=](Node& node) { operation(node, ticket); });
  return handle.wait(ticket, kPatience, {}).message;
}

}  // namespace

TEST_CASE("workers train from their own threads") {
  bool is_memory_shared = false;
  SUBCASE("over TCP") {}
  SUBCASE("with shared memory") { is_memory_shared = true; }
  Deployment deployment(2, is_memory_shared);
  deployment.run([](Handle& worker, uint32_t rank) {
    CHECK(worker.start({}).message == "");
    std::vector<float> values(5000, float(rank)), out(5000);
    CHECK(wait(worker, "init", [&](Node& n, const TicketPtr& t) { n.worker()->init({tensor("k", values)}, t); }) == "");
    for (int round = 1; round <= 5; ++round) {
      std::fill(values.begin(), values.end(), float(rank + round));
      CHECK(wait(worker, "push", [&](Node& n, const TicketPtr& t) { n.worker()->push({tensor("k", values)}, t); }) ==
            "");
      values.assign(values.size(), -1);  // its ticket says that it isn't read any more
      CHECK(wait(worker, "pull", [&](Node& n, const TicketPtr& t) { n.worker()->pull({tensor("k", out)}, t); }) == "");
      CHECK(out == std::vector<float>(5000, float(2 * round + 1)));
      CHECK(wait(worker, "barrier", [](Node& n, const TicketPtr& t) { n.barrier(true, t); }) == "");
    }
    CHECK(worker.ask<Counters>([](Node& n) { return n.counters(); }).of(Tier::wan).up_payload_bytes == 5 * 5000 * 4);
    CHECK(wait(worker, "leave", [](Node& n, const TicketPtr& t) { n.leave(t); }) == "");
  });
  deployment.has_left = true;
}

TEST_CASE("one node is used by many threads at once") {
  Deployment deployment(1, true);
  Handle& worker = *deployment.workers[0];
  REQUIRE(worker.start({}).message == "");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      std::vector<float> values(100, float(i)), out(100);
      const std::string key = "k" + std::to_string(i);
      for (int round = 0; round < 20; ++round) {
        CHECK(wait(worker, "push_pull", [&](Node& n, const TicketPtr& t) {
                t->expect();
                n.worker()->push({tensor(key, values)}, t);
                n.worker()->pull({tensor(key, out)}, t);
                t->complete_one();
              }) == "");
        CHECK(out == values);
        CHECK(worker.name() == "worker 0 of party p0");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wait(worker, "leave", [](Node& n, const TicketPtr& t) { n.leave(t); }) == "");
  deployment.has_left = true;
}

TEST_CASE("calls that wait end when the node is closed or the run fails") {
  Deployment deployment(2, false);
  bool is_failure = false;
  SUBCASE("closed") {}
  SUBCASE("failed") { is_failure = true; }
  deployment.run([](Handle& worker, uint32_t) { CHECK(worker.start({}).message == ""); });
  Handle& worker = *deployment.workers[0];
  std::thread waiting([&] {
    const std::string error = wait(worker, "barrier", [](Node& n, const TicketPtr& t) { n.barrier(true, t); });
    INFO(error);
    CHECK(error.find(is_failure ? "out of paper" : "closed") != std::string::npos);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  is_failure ? deployment.workers[1]->fail("out of paper") : worker.close();
  waiting.join();
}

TEST_CASE("a wait ends at its deadline with a sentence, and the node goes on") {
  Deployment deployment(2, false);
  deployment.run([](Handle& worker, uint32_t rank) {
    CHECK(worker.start({}).message == "");
    std::vector<float> values(10, 1), out(10);
    if (rank == 0) {
      const auto ticket = std::make_shared<Ticket>("pull of key \"k\"");
      worker.submit(ticket, [&, ticket](Node& node) { node.worker()->pull({tensor("k", out)}, ticket); });
      const Handle::Result result = worker.wait(ticket, 0.05, {});
      CHECK(result.fault == Fault::timeout);
      CHECK(result.message.find("pull of key \"k\" was not done after 0.05 s") != std::string::npos);
    }
    CHECK(wait(worker, "barrier", [](Node& n, const TicketPtr& t) { n.barrier(true, t); }) == "");
    CHECK(wait(worker, "push", [&](Node& n, const TicketPtr& t) { n.worker()->push({tensor("k", values)}, t); }) == "");
    CHECK(wait(worker, "pull", [&](Node& n, const TicketPtr& t) { n.worker()->pull({tensor("k", out)}, t); }) == "");
    CHECK(out == std::vector<float>(10, 2));
    CHECK(wait(worker, "leave", [](Node& n, const TicketPtr& t) { n.leave(t); }) == "");
  });
  deployment.has_left = true;
}
