"""How a batch is scored and its keys are found: candidates, ranks, clusters, divergences, schedules."""
