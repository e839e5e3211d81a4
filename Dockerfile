# CPU: docker build -t ckl-jax . && docker run --rm -v "$PWD/runs:/runs" ckl-jax ckl demo --size tiny
FROM python:3.12-slim
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir '.[data,gpt2,parquet]' && rm -rf /src
WORKDIR /
RUN useradd --create-home ckl && mkdir /runs && chown ckl /runs
USER ckl
CMD ["ckl", "--help"]
