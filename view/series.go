package view

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"sort"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/inspect"
)

// writeBinary answers columns of numbers. The answer holds the length of a JSON header (4 bytes,
// little-endian), the header padded to 8 bytes, and the columns.
func (q *request) writeBinary(header any, columns ...[]float64) error {
	b, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for (4+len(b))%8 != 0 {
		b = append(b, ' ')
	}
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(b)))
	out = append(out, b...)
	for _, c := range columns {
		for _, v := range c {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(v))
		}
	}
	q.Header().Set("Content-Type", "application/octet-stream")
	_, err = q.Write(out)
	return err
}

// serveSeries answers the rows of a numeric stream in a time range, thinned to a number of pixel
// columns.
func (s *Server) serveSeries(q *request) error {
	all, err := q.set.timelines(q.Context(), q.episode)
	if err != nil {
		return err
	}
	timeline, err := q.set.timeline(q.Context(), q.episode, q.feature)
	if err != nil {
		return err
	}
	from, err := q.queryNumber("from", math.MinInt64, math.MinInt64, math.MaxInt64)
	if err != nil {
		return err
	}
	to, err := q.queryNumber("to", math.MaxInt64, math.MinInt64, math.MaxInt64)
	if err != nil {
		return err
	}
	channel, err := q.queryNumber("ch", 0, 0, int64(max(q.feature.Elements(), 1)-1))
	if err != nil {
		return err
	}
	pixels, err := q.queryNumber("px", 1000, 1, 4000)
	if err != nil {
		return err
	}
	p, err := inspect.SeriesOf(q.Context(), q.set.ds, q.feature, timeline, q.episode, inspect.Range{
		Start: all.Start, From: from, To: to,
		Channel: int(channel), Pixels: int(pixels),
	})
	if err != nil {
		return err
	}
	return q.writeBinary(p, append([][]float64{p.X}, p.Y...)...)
}

// serveText answers rows of a text or event stream. Of consecutive equal texts only the first is
// sent.
func (s *Server) serveText(q *request) error {
	ctx := q.Context()
	all, err := q.set.timelines(ctx, q.episode)
	if err != nil {
		return err
	}
	l, err := q.set.timeline(ctx, q.episode, q.feature)
	if err != nil {
		return err
	}
	type row struct {
		Row  int    `json:"row"`
		Time int64  `json:"t_ns"`
		Text string `json:"text"`
	}
	out := struct {
		Rows []row `json:"rows"`
		Upto int   `json:"rows_read"` // below the number of rows if there are more than maxTexts
	}{Rows: []row{}, Upto: l.Rows}
	for k := 0; k < l.Rows; k += 256 {
		texts, err := q.set.ds.Text(
			ctx,
			q.feature.Key,
			robocache.RowsOf(q.episode, k, min(256, l.Rows-k)),
		)
		if err != nil {
			return err
		}
		for i, text := range texts {
			n := len(out.Rows)
			isNew := n == 0 || out.Rows[n-1].Text != text
			isEvent := q.feature.Kind == robocache.KindEvent && text != ""
			if isNew || isEvent {
				out.Rows = append(out.Rows, row{k + i, l.Times[k+i] - all.Start, clipText(text)})
			}
		}
		if len(out.Rows) > maxTexts {
			out.Upto = min(k+256, l.Rows)
			break
		}
	}
	return q.writeJSON(out)
}

// clipText shortens a long text.
func clipText(text string) string {
	if r := []rune(text); len(r) > 4000 {
		return string(r[:4000]) + "…"
	}
	return text
}

// rowValue is the row of a stream at a given time.
type rowValue struct {
	Key    string     `json:"key"`
	Row    int        `json:"row"`
	Time   int64      `json:"t_ns"`
	Values []*float64 `json:"values,omitempty"` // null if missing or not finite
	Text   *string    `json:"text,omitempty"`
	Valid  *bool      `json:"valid,omitempty"`
}

// serveValues answers, for each stream, the last row at or before a time.
func (s *Server) serveValues(q *request) error {
	ctx := q.Context()
	all, err := q.set.timelines(ctx, q.episode)
	if err != nil {
		return err
	}
	t, err := q.queryNumber("t", 0, math.MinInt64/2, math.MaxInt64/2)
	if err != nil {
		return err
	}
	out := []rowValue{}
	for i, l := range all.Streams {
		f := &q.set.info.Features[i]
		n := sort.Search(len(l.Times), func(k int) bool { return l.Times[k] > all.Start+t }) - 1
		if f.Latched && n < 0 && len(l.Times) > 0 {
			n = 0
		}
		if n < 0 {
			continue
		}
		v := rowValue{Key: f.Key, Row: n, Time: l.Times[n] - all.Start}
		row := []robocache.Row{{Episode: q.episode, Index: n}}
		switch {
		case f.Kind == robocache.KindText || f.Kind == robocache.KindEvent:
			texts, err := q.set.ds.Text(ctx, f.Key, row)
			if err != nil {
				return err
			}
			text := clipText(texts[0])
			v.Text = &text
		case inspect.Curves(f) && f.RowBytes() <= maxBody:
			raw := make([]byte, f.RowBytes())
			if err := q.set.ds.Gather(ctx, f.Key, row, raw); err != nil {
				return err
			}
			values := robocache.Float64s(
				nil,
				f.DType,
				raw[:min(f.Elements(), 4*inspect.MaxChannels)*f.DType.Size()],
			)
			for k := range values {
				v.Values = append(v.Values, nil)
				if x := values[k]; x-x == 0 {
					v.Values[k] = &values[k]
				}
			}
			if valid, err := robocache.Validity(ctx, q.set.ds, f, row); err != nil {
				return err
			} else if valid != nil {
				no := false
				v.Valid = &no
				v.Values = nil
			}
		}
		out = append(out, v)
	}
	return q.writeJSON(out)
}
