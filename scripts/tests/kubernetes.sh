#!/usr/bin/env bash
# Builds a Kubernetes control plane (apiserver, controller-manager) and downloads etcd into DIR, for
# `ROBOCACHE_KUBERNETES=DIR go test ./submit -run ControlPlane`. This takes six minutes and 5 GB on
# two cores, so `make test-all` does not run it. It uses a Go module of its own, so none of it is a
# dependency of ours.
set -euo pipefail
dir=${1:?usage: scripts/tests/kubernetes.sh DIR [VERSION]} version=${2:-v1.34.2}
mkdir -p "$dir/src/apiserver" "$dir/src/manager"
cd "$dir/src"
for main in apiserver:NewAPIServerCommand:kube-apiserver manager:NewControllerManagerCommand:kube-controller-manager; do
  IFS=: read -r folder command package <<<"$main"
  printf 'package main\n\nimport (\n\t"os"\n\n\t"k8s.io/component-base/cli"\n\t"k8s.io/kubernetes/cmd/%s/app"\n)\n\nfunc main() { os.Exit(cli.Run(app.%s())) }\n' "$package" "$command" >"$folder/main.go"
done
# Kubernetes replaces its staging modules by folders. Each has a release with the same number.
source=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
{
  sed '/^replace (/,/^)/d; s/^module .*/module controlplane/' "$source/go.mod"
  echo "require k8s.io/kubernetes $version"
  sed -n '/^replace (/,/^)/s|^\t\(k8s.io/[^ ]*\) => .*|replace \1 => \1 v0.'"${version#v1.}"'|p' "$source/go.mod"
} >go.mod
cp "$source/go.sum" .
GOFLAGS=-mod=mod go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$version")" \
  -o "$dir/" ./apiserver ./manager
(cd "$dir" && apt-get -q download etcd-server && dpkg-deb -x etcd-server_*.deb . && mv usr/bin/etcd . && rm -r usr lib etc var etcd-server_*.deb 2>/dev/null) || true
ls -l "$dir/apiserver" "$dir/manager" "$dir/etcd"
