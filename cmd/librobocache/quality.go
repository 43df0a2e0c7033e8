//go:build cgo

package main

import (
	"encoding/binary"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/flags"
	"github.com/goatnote-inc/robocache/quality"
	"github.com/goatnote-inc/robocache/verbs"
)

// qualityReply is a summary with the columns of its table.
type qualityReply struct {
	*verbs.Quality
	Columns []columnReply `json:"columns"`
}

// columnReply is one column: texts, or numbers of 8 bytes, little-endian.
type columnReply struct {
	Name  string   `json:"name"`
	DType string   `json:"dtype"`
	Data  []byte   `json:"data,omitempty"`
	Texts []string `json:"texts,omitempty"`
}

// newQualityReply returns the reply for a summary.
func newQualityReply(q *verbs.Quality) *qualityReply {
	reply := &qualityReply{Quality: q}
	for _, f := range q.Table.Fields() {
		c := columnReply{Name: f.Name}
		switch {
		case f.Texts != nil:
			c.DType, c.Texts = "text", f.Texts
		case f.Integers != nil:
			c.DType = "int64"
			for _, v := range f.Integers {
				c.Data = binary.LittleEndian.AppendUint64(c.Data, uint64(v))
			}
		default:
			c.DType = "float64"
			for _, v := range f.Numbers {
				c.Data = binary.LittleEndian.AppendUint64(c.Data, math.Float64bits(v))
			}
		}
		reply.Columns = append(reply.Columns, c)
	}
	return reply
}

// qualityVerb measures the dataset of a request.
func qualityVerb(
	ctx context, r *verbs.QualityRequest, o verbs.Observer,
) (*qualityReply, error) {
	q, err := verbs.MeasureQuality(ctx, r, o)
	if err != nil {
		return nil, err
	}
	return newQualityReply(q), nil
}

// qualityArgs are the arguments of robocache_quality.
type qualityArgs struct {
	Episodes []int          `json:"episodes"` // indices; nil: all
	Frames   quality.Frames `json:"frames"`
	Threads  int            `json:"threads"`
}

// measureQuality returns the table of a dataset: the stored one if it is of this dataset and has
// the same choice of frames and episodes, else a new one, which is not stored.
func (s *sharedDataset) measureQuality(ctx context, a *qualityArgs) (any, error) {
	info := s.Info()
	table, err := s.storedQuality(ctx, a)
	if err != nil {
		return nil, err
	}
	if table == nil {
		opt := quality.Options{Frames: a.Frames, Threads: a.Threads}
		if opt.Episodes, err = info.EpisodePositions(a.Episodes); err != nil {
			return nil, err
		}
		if table, err = quality.Measure(ctx, s.Dataset, opt); err != nil {
			return nil, robocache.At(err, robocache.Where{"dataset": info.URI})
		}
	}
	q := verbs.NewQuality(table)
	q.URI, q.Format = info.URI, info.Format
	return newQualityReply(q), nil
}

// storedQuality returns the stored table of a dataset; nil if there is none, or if it is of other
// data or other options.
func (s *sharedDataset) storedQuality(ctx context, a *qualityArgs) (*quality.Table, error) {
	table, err := quality.LoadCurrent(ctx, s.Dataset)
	if robocache.IsFatal(err) {
		return nil, err
	}
	isOther := err != nil || a.Episodes != nil || table.Len() != s.Info().Episodes ||
		table.Frames != a.Frames
	if isOther {
		return nil, nil
	}
	fingerprint, err := flags.Fingerprint(ctx, s.Dataset)
	if err != nil || fingerprint != table.Fingerprint {
		return nil, err
	}
	return table, nil
}
