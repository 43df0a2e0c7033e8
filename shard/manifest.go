package shard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// manifestVersion is the version of the manifest's layout.
const manifestVersion = 1

// Manifest describes a job, its source and its shards.
type Manifest struct {
	Version int    `json:"version"`
	Tool    string `json:"tool"` // tool that made the plan
	Job     Job    `json:"job"`
	JobHash string `json:"job_sha256"`
	Inputs  Inputs `json:"inputs"`
	// data that the writers of all shards share
	Schema   json.RawMessage     `json:"schema,omitempty"`
	Features []robocache.Feature `json:"features"` // features of the result
	Episodes int                 `json:"num_episodes"`
	Frames   int64               `json:"num_frames"`
	Bytes    int64               `json:"bytes"`
	// findings of the source and its grid at planning time
	Findings []robocache.Finding `json:"findings,omitempty"`
	Shards   []Shard             `json:"shards"`

	id string // SHA-256 of its bytes
}

// Run returns the name of the plan in logs, which is the beginning of the manifest's SHA-256.
func (m *Manifest) Run() string { return m.id[:12] }

// Job is the work with its options.
type Job struct {
	Name        string                `json:"name"` // one of Jobs
	Source      string                `json:"source"`
	Open        robocache.OpenOptions `json:"open,omitzero"`
	Destination string                `json:"destination"`
	To          string                `json:"to,omitempty"` // destination format
	// Convert.Episodes holds episode indices.
	Convert convert.Options           `json:"convert,omitzero"`
	Frames  stats.FramePolicy         `json:"frames,omitempty"` // images that a job reads
	Doctor  robocache.DiagnoseOptions `json:"doctor,omitzero"`
	SkipBad bool                      `json:"skip_bad,omitempty"`
}

// Shard is one unit of work.
type Shard struct {
	Episodes     Episodes `json:"episodes"` // indices in the source
	FirstEpisode int      `json:"first_episode"`
	FirstRow     int64    `json:"first_row"`
	Frames       int64    `json:"frames"`
	Bytes        int64    `json:"bytes"`
}

// Episodes is an ascending list of indices. In JSON it is a text such as "0-9,12".
type Episodes []int

// MarshalText writes runs as from-to.
func (e Episodes) MarshalText() ([]byte, error) {
	var b []byte
	for i := 0; i < len(e); {
		k := i
		for k+1 < len(e) && e[k+1] == e[k]+1 {
			k++
		}
		if i > 0 {
			b = append(b, ',')
		}
		if b = strconv.AppendInt(b, int64(e[i]), 10); k > i {
			b = strconv.AppendInt(append(b, '-'), int64(e[k]), 10)
		}
		i = k + 1
	}
	return b, nil
}

// maxEpisodes limits the total number of episodes in a manifest's lists, because a few bytes can
// name any number.
const maxEpisodes = 1 << 25

// UnmarshalText parses the output of MarshalText.
func (e *Episodes) UnmarshalText(b []byte) error {
	*e = nil
	return eachRun(string(b), func(a, z int) {
		for ; a <= z; a++ {
			*e = append(*e, a)
		}
	})
}

// eachRun calls yield with the first and last number of each run in a list.
func eachRun(text string, yield func(a, z int)) error {
	n, last := 0, -1
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		from, to, run := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		z := a
		if err == nil && run {
			z, err = strconv.Atoi(to)
		}
		if err != nil || z < a || z-a >= maxEpisodes-n || a <= last {
			return robocache.Malformed("manifest", nil, "").
				Expected("episodes such as 0-9,12", strconv.Quote(part))
		}
		n, last = n+z-a+1, z
		yield(a, z)
	}
	return nil
}

// Marshal encodes a manifest. Equal manifests have equal bytes.
func (m *Manifest) Marshal() (_ []byte, err error) {
	head := *m
	head.Shards = nil
	var b bytes.Buffer
	text, err := json.MarshalIndent(&head, "", " ")
	if err != nil {
		return nil, err
	}
	b.Write(bytes.TrimSuffix(text, []byte("null\n}")))
	b.WriteString("[")
	for i := range m.Shards { // one line each
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  ")
		encoded, err := json.Marshal(&m.Shards[i])
		if err != nil {
			return nil, err
		}
		b.Write(encoded)
	}
	b.WriteString("\n ]\n}\n")
	return b.Bytes(), nil
}

// Parse parses a manifest from an untrusted source.
func Parse(b []byte) (_ *Manifest, err error) {
	defer crash.Recover("manifest", &err)
	m := &Manifest{}
	bad := func(what string, err error) error {
		return robocache.Malformed("manifest", nil, "%s", what).WithCause(err)
	}
	var lists struct{ Shards []struct{ Episodes string } }
	if err := json.Unmarshal(b, &lists); err != nil {
		return nil, bad("it cannot be read", err)
	}
	named := 0
	for _, s := range lists.Shards { // counted before memory is allocated
		if err := eachRun(
			s.Episodes,
			func(a, z int) { named += z - a + 1 },
		); err != nil ||
			named > maxEpisodes {
			return nil, bad(
				fmt.Sprintf(
					"its shards name more than %d episodes, or none that can be read",
					maxEpisodes,
				),
				err,
			)
		}
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, bad("it cannot be read", err)
	}
	sum := sha256.Sum256(b)
	m.id = hex.EncodeToString(sum[:])
	if m.Version != manifestVersion {
		return nil, robocache.Unsupported("manifest", nil, "").
			Expected(fmt.Sprintf("version %d", manifestVersion), strconv.Itoa(m.Version)).
			WithHint("plan again with this program")
	}
	hash, err := m.Job.jobHash()
	if err != nil {
		return nil, err
	}
	if m.JobHash != hash {
		return nil, bad("its options are not those that were planned (job_sha256)", nil)
	}
	if len(m.Shards) == 0 || len(m.Shards) > maxShards {
		return nil, bad(fmt.Sprintf("%d shards", len(m.Shards)), nil)
	}
	if err := m.Job.checkJob(); err != nil {
		return nil, err
	}
	var frames int64
	episodes := 0
	all := make([]int, 0, named)
	for i := range m.Shards {
		s := &m.Shards[i]
		// An episode of the source may be split into one episode per row.
		if s.FirstEpisode < 0 || s.FirstRow < 0 || s.FirstRow > frames ||
			int64(s.FirstEpisode) > int64(episodes)+frames ||
			s.Frames < 0 {
			return nil, bad(
				fmt.Sprintf("shard %d begins at episode %d, row %d", i, s.FirstEpisode, s.FirstRow),
				nil,
			)
		}
		all = append(all, s.Episodes...)
		episodes, frames = episodes+len(s.Episodes), frames+s.Frames
	}
	slices.Sort(all)
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			return nil, bad(fmt.Sprintf("episode %d is in two shards", all[i]), nil)
		}
	}
	return m, nil
}

// Read reads the manifest at a path or URI.
func Read(ctx context.Context, uri string) (_ *Manifest, err error) {
	folder, name := store.Above(uri)
	st, err := store.Open(folder)
	if err := robocache.At(err, robocache.Where{"file": robocache.Redact(uri)}); err != nil {
		return nil, err
	}
	defer store.Close(st)
	content, err := store.ReadFile(ctx, st, name, 1<<30)
	if err != nil {
		return nil, err
	}
	m, err := Parse(content)
	return m, robocache.At(err, robocache.Where{"file": robocache.Redact(uri)})
}

// Write writes the manifest to a path or URI. It replaces an existing file.
func (m *Manifest) Write(ctx context.Context, uri string) (err error) {
	folder, name := store.Above(uri)
	st, err := store.OpenWritable(folder)
	if err != nil {
		return err
	}
	defer store.Close(st)
	encoded, err := m.Marshal()
	if err != nil {
		return err
	}
	return store.Put(ctx, st, name, encoded)
}

// joinURI returns the URI of a folder in the store at uri.
func joinURI(uri, name string) string {
	base, query, ok := strings.Cut(uri, "?")
	if !strings.Contains(uri, "://") {
		return filepath.Join(uri, filepath.FromSlash(name))
	}
	if base = strings.TrimRight(base, "/") + "/" + name; ok {
		base += "?" + query
	}
	return base
}

// jobHash returns the SHA-256 of the job as JSON.
func (j *Job) jobHash() (string, error) {
	encoded, err := json.Marshal(j)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:]), nil
}

// checkJob rejects options that a manifest must not contain.
func (j *Job) checkJob() error {
	if _, err := findJob(j.Name); err != nil {
		return err
	}
	misuse := func(what, hint string) error {
		return robocache.Misuse("manifest", nil, "%s", what).WithHint("%s", hint)
	}
	switch {
	case j.Source == "" || j.Destination == "":
		if err := misuse("no source or no destination", ""); err != nil {
			return err
		}
	case j.Convert.Options["temp_dir"] != "":
		if err := misuse("the option temp_dir names a folder outside the destination",
			"set TMPDIR where the shards run"); err != nil {
			return err
		}
	case j.Convert.Resume || j.Convert.DryRun:
		if err := misuse("a shard is not resumed: it is run again", ""); err != nil {
			return err
		}
	}
	return nil
}
