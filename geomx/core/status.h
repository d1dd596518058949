// Two kinds of fault. Status: a user or a peer did it; a sentence that says what was expected, what came and what to
// do. GX_CHECK: we broke an invariant of our own; the process ends with a message.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace geomx {

class Status {
 public:
  Status() = default;
  static Status error(std::string message) {
    Status status;
    status.message_ = message.empty() ? "unknown error" : std::move(message);
    return status;
  }
  bool ok() const { return message_.empty(); }
  const std::string& message() const { return message_; }

 private:
  std::string message_;
};

}  // namespace geomx

#define GX_CHECK(condition, message)                                                                 \
  do {                                                                                               \
    if (!(condition)) {                                                                              \
      std::fprintf(stderr, "geomx: broken invariant at %s:%d: %s\n", __FILE__, __LINE__, (message)); \
      std::abort();                                                                                  \
    }                                                                                                \
  } while (false)
