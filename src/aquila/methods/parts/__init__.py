"""Parts that several methods share: servers, memories, schedules and noise control."""
