"""What `advisorchain.telemetry` is made of: recorder, spans, metrics, content, log events."""
