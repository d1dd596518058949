// Which room a frame of a round goes to.
#pragma once
#include "aggregator.h"
#include "client.h"
#include "relay.h"

namespace geomx {

// False if the frame is about something else, or for a room that this node doesn't have.
inline bool dispatch(NodeId from, Frame& frame, Client* client, Aggregator* aggregator) {
  switch (frame.kind) {
    case FrameKind::push:
      if (aggregator) return aggregator->take_push(from, std::move(frame)), true;
      if (client && client->relay()) return client->relay()->take(std::move(frame)), true;
      return false;
    case FrameKind::end:
      return aggregator && (aggregator->take_end(from, frame), true);
    case FrameKind::pull:
      return aggregator && (aggregator->take_pull(from, frame), true);
    case FrameKind::init:
      return aggregator && (aggregator->take_initial(frame), true);
    case FrameKind::leave:
      return aggregator && (aggregator->take_leave(from, frame), true);
    case FrameKind::value:
      return client && (client->take_value(std::move(frame)), true);
    case FrameKind::overlap:
      return client && (client->take_overlap(frame), true);
    case FrameKind::leave_taken:
      return client && (client->take_leave_taken(from), true);
    default:
      return false;
  }
}

}  // namespace geomx
