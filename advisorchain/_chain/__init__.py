"""The engine of `AdvisorChain`.

- A *step* (`steps`) is one advisor, compiled: its hooks, told apart into sync and async.
- A *frame* (`frames`) is a run of hook-only steps around one *source* (`sources`): the model, or an around advisor with the
  next frame beneath it. A chain is thus a few frames, however many advisors it has.
- A *run* (`run`) is one call or stream; its *progress* (`progress`) is what has left each step of a streaming frame so far.
- `unwind` ends what was begun, inner first; `stream` is what `chain.stream` gives to its reader.
"""
