"""Parts that methods share: servers, memories, schedules and noise control."""
