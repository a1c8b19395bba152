#pragma once

#include <string>
#include <string_view>

#include "base/json_writer.h"
#include "server/answer_format.h"

namespace tandem::server {

// Pieces that the formats share.

// {"id":…,"object":…,"created":…,"model":…  — the object stays open.
void write_head(JsonWriter& json, const AnswerHead& head, std::string_view object);
void write_usage(JsonWriter& json, const engine::Usage& usage);  // the member "usage"

// One server-sent event. JSON has no raw line ends, so one data line is enough.
void append_event(std::string& out, std::string_view data);
void append_done(std::string& out);

// The completion tokens of all choices; the prompt counts once.
void add_usage(engine::Usage& total, const engine::Usage& of_choice);

// What ended the choice beyond the model's end token, as JSON: a stop string, the request's own stop
// id, or null.
[[nodiscard]] std::string stop_reason_json(const engine::Finish& finish, const AnswerHead& head);

}  // namespace tandem::server
