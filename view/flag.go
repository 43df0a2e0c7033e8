package view

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/flags"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
)

// readFlags answers the file of flags.
func (s *Server) readFlags(q *request) error {
	s.flagsMu.Lock()
	b, err := s.flags.Bytes()
	s.flagsMu.Unlock()
	if err != nil {
		return err
	}
	q.Header().Set("Content-Type", "application/json")
	_, err = q.Write(b)
	return err
}

// readBody reads the body of a request. Its size is limited.
func readBody(q *request, op string) ([]byte, error) {
	body, err := io.ReadAll(q.Body)
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, robocache.ResourceLimit(op, nil, "").WithCause(err)
	}
	return body, err
}

// flagChange is a request to set or to remove a flag. It names one episode or several.
type flagChange struct {
	flags.Flag
	Index   *int64  `json:"episode"`
	Indices []int64 `json:"episodes"`
	Remove  bool    `json:"remove"`
}

// readFlagChange parses a request and checks that its episodes exist. It returns the new flags.
func (s *Server) readFlagChange(q *request) (in flagChange, added []flags.Flag, err error) {
	body, err := readBody(q, "flags")
	if err != nil {
		return in, nil, err
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return in, nil, jsonmeta.OptionError("flags", "", body, err)
	}
	if in.Index != nil {
		in.Indices = append(in.Indices, *in.Index)
	}
	x := s.sets[0]
	for _, index := range in.Indices {
		position, err := x.info.EpisodePosition(index)
		if err != nil {
			return in, nil, notFound("no such episode")
		}
		flag := in.Flag
		flag.Episode, flag.Length = index, x.ds.Len(position)
		added = append(added, flag)
	}
	return in, added, nil
}

// writeFlag sets or removes the flags of episodes, or of some rows. It writes the file of flags if
// the caller named one. Flags belong to the first dataset.
func (s *Server) writeFlag(q *request) error {
	in, added, err := s.readFlagChange(q)
	if err != nil {
		return err
	}
	ctx := q.Context()
	named := map[int64]bool{}
	for _, index := range in.Indices {
		named[index] = true
	}
	s.flagsMu.Lock()
	defer s.flagsMu.Unlock()
	next := *s.flags
	next.Flags = slices.DeleteFunc(slices.Clone(next.Flags), func(f flags.Flag) bool {
		return named[f.Episode] && slices.Equal(f.Rows, in.Rows)
	})
	if !in.Remove {
		next.Flags = append(next.Flags, added...)
	}
	b, err := next.Bytes()
	if err != nil {
		return err
	}
	// Parse checks that the rows lie within the episode.
	if _, err := flags.Parse(b); err != nil {
		return err
	}
	if s.opt.Flags != "" {
		if err := next.Write(ctx, s.opt.Flags); err != nil {
			return err
		}
	}
	s.flags = &next
	q.Header().Set("Content-Type", "application/json")
	_, err = q.Write(b)
	return err
}
