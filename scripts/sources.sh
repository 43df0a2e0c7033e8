# Functions for scripts that build from Debian's source packages. apt verifies the signatures.
# sources DIR: downloads the lists of source packages into DIR, from the machine's package sources.
sources() {
  local f
  mkdir -p "$1/lists/partial" "$1/parts"
  for f in /etc/apt/sources.list.d/*.sources; do
    [ -f "$f" ] || continue
    awk -v RS= '/debian-archive-keyring|\/debian/ {gsub(/Types: deb( deb-src)?/, "Types: deb-src"); print; print ""}' "$f" >> "$1/parts/src.sources"
  done
  if [ -f /etc/apt/sources.list ]; then
    sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > "$1/parts/src.list"
  fi
  apt=(apt-get -q -o APT::Sandbox::User=root -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$1/parts" -o "Dir::State::lists=$1/lists")
  apt_lock=$1/lock
  "${apt[@]}" update >/dev/null
}

# fetch NAME: unpacks Debian's source of a package, without Debian's patches, into the folder NAME.
fetch() {
  # A mirror may list a security update before it has the files. In that case the version of the
  # Debian release is used.
  flock "$apt_lock" "${apt[@]}" source --download-only "$1" >/dev/null || flock "$apt_lock" "${apt[@]}" source --download-only "$1/$(. /etc/os-release; echo "$VERSION_CODENAME")" >/dev/null
  local tar
  tar=$(ls "$1"_*.orig.tar.* | grep -v '\.asc$' | head -n 1)
  mkdir "$1"
  tar -xf "$tar" -C "$1" --strip-components=1 --exclude='*/tests/ref/*'
}
