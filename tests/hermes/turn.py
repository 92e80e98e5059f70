"""Runs in Hermes' own environment: one turn of a real Hermes agent, with the model of its settings.

The arguments are the model's address, its name, its key, the session and what the user says; the
agent's reply is printed on standard output.
"""

import logging
import sys

from run_agent import AIAgent


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    base_url, model, api_key, session_id, said = sys.argv[1:]
    agent = AIAgent(
        base_url=base_url,
        api_key=api_key,
        provider="custom",
        model=model,
        session_id=session_id,
        enabled_toolsets=["memory"],
        quiet_mode=True,
        skip_context_files=True,
        max_iterations=5,
    )
    result = agent.run_conversation(said)
    agent.shutdown_memory_provider(result["messages"])
    print(result["final_response"])


if __name__ == "__main__":
    main()
