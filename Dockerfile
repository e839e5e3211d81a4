# CPU, run as the user that owns the folder `runs`:
#   docker build -t ckl-jax . && mkdir -p runs
#   docker run --rm --user "$(id -u)" -v "$PWD/runs:/runs" ckl-jax ckl demo --size tiny
FROM python:3.12-slim
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir '.[data,gpt2,parquet]' && rm -rf /src
WORKDIR /
# Whoever runs it, as by `--user`, may write to both.
RUN useradd --create-home ckl && mkdir /runs && chmod 777 /home/ckl /runs
ENV HOME=/home/ckl
USER ckl
CMD ["ckl", "--help"]
