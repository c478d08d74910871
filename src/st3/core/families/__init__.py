"""The kinds of methods: what each keeps per weight, and what it does around a step."""
