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

// writeFlag sets or removes the flag of an episode or of some of its rows. It writes the file of
// flags if the caller named one. Flags belong to the first dataset.
func (s *Server) writeFlag(q *request) error {
	body, err := io.ReadAll(q.Body)
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return robocache.ResourceLimit("flags", nil, "").WithCause(err)
	}
	if err != nil {
		return err
	}
	var in struct {
		Index int64 `json:"episode"`
		flags.Flag
		Remove bool `json:"remove"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return jsonmeta.OptionError("flags", "", body, err)
	}
	x := s.sets[0]
	ctx := q.Context()
	position, err := x.info.EpisodePosition(in.Index)
	if err != nil {
		return notFound("no such episode")
	}
	flag := in.Flag
	flag.Episode = in.Index
	flag.Length = x.ds.Len(position)
	s.flagsMu.Lock()
	defer s.flagsMu.Unlock()
	next := *s.flags
	next.Flags = slices.DeleteFunc(slices.Clone(next.Flags), func(f flags.Flag) bool {
		return f.Episode == flag.Episode && slices.Equal(f.Rows, flag.Rows)
	})
	if !in.Remove {
		next.Flags = append(next.Flags, flag)
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
