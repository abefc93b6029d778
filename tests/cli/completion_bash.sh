$POISE completion bash | bash -n && echo good
