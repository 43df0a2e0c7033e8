package rosbag2

import (
	"context"
	"errors"
	"slices"
	"sort"
	"strconv"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/internal/sqlite"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// db3 is one SQLite file as a recording.
type db3 struct {
	file   robocache.Ranged
	name   string
	db     *sqlite.DB
	table  *sqlite.Table
	at     [3]int // columns topic_id, timestamp, data
	infos  []bag.TopicInfo
	topics []db3Topic
	bytes  int64
	found  []robocache.Finding

	readers sync.Pool // of *sqlite.Reader
}

// db3Topic is the messages of a topic in log-time order.
type db3Topic struct {
	log   []int64
	place []sqlite.Place
}

var (
	_ bag.Storage = (*db3)(nil)
	_ bag.Bulk    = (*db3)(nil)
	_ bag.Sized   = (*db3)(nil)
)

// openDB3 reads the topics and the places of all messages. wal is the log beside the file, which may be empty; nil where there is none. Close of the storage closes the file.
func openDB3(ctx context.Context, file robocache.Ranged, name string, wal []byte, kept *lastBlocks) (s *db3, err error) {
	defer guard.File("rosbag2 open", name, &err)
	where := robocache.Where{"file": name}
	file = ahead(file, name, kept)
	db, err := sqlite.Open(ctx, file, wal)
	if err != nil {
		return nil, robocache.At(err, where)
	}
	s = &db3{file: file, name: name, db: db}
	if wal != nil {
		s.found = append(s.found, robocache.Finding{Severity: robocache.SeverityWarning, Code: "not-closed", Where: where, Count: int64(db.LogPages()),
			Message: "a write-ahead log lies beside the file: the recorder did not close it. " + strconv.Itoa(db.LogPages()) + " pages were read from the log", Hint: "open and close the file once with sqlite3"})
	}
	numbers, err := s.list(ctx)
	if err != nil {
		return nil, robocache.At(err, where)
	}
	if err := s.index(ctx, numbers); err != nil {
		return nil, robocache.At(err, where)
	}
	return s, nil
}

const maxTopics = 65535

// Remote says that reading messages waits for a store.
func (s *db3) Remote() bool { return store.Remote(s.file) }

func (s *db3) need(table string, columns ...string) (*sqlite.Table, []int, error) {
	t := s.db.Table(table)
	if t == nil {
		return nil, nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "rosbag2", Msg: "the database has no table " + table, Hint: "a rosbag2 recording has the tables topics and messages"}
	}
	var at []int
	for _, c := range columns {
		k := t.Column(c)
		if k < 0 {
			return nil, nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "rosbag2", Msg: "the table " + table + " has no column " + c}
		}
		at = append(at, k)
	}
	return t, at, nil
}

// list reads the topics and their definitions: number in the file → place in infos.
func (s *db3) list(ctx context.Context) (map[int64]int, error) {
	type definition struct{ encoding, text string }
	defs := map[string]definition{}
	if t, at, err := s.need("message_definitions", "topic_type", "encoding", "encoded_message_definition"); err == nil {
		err := s.db.Scan(ctx, t, func(r *sqlite.Row) error {
			var v [3]string
			var err error
			for k := range v {
				if r.Size(at[k]) > 4<<20 {
					return nil // no definition is that long
				}
				if v[k], err = r.Text(ctx, at[k]); err != nil {
					return err
				}
			}
			if len(defs) < maxTopics {
				defs[v[0]] = definition{v[1], v[2]}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	t, at, err := s.need("topics", "id", "name", "type", "serialization_format")
	if err != nil {
		return nil, err
	}
	qos := t.Column("offered_qos_profiles")
	numbers := map[int64]int{}
	type key struct{ name, typ, encoding string }
	known := map[key]int{}
	return numbers, s.db.Scan(ctx, t, func(r *sqlite.Row) error {
		id, ok := r.Int(at[0])
		if !ok || len(numbers) >= maxTopics {
			return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "rosbag2", Msg: "topics without a number, or more than " + strconv.Itoa(maxTopics)}
		}
		var v [4]string
		for k, c := range []int{at[1], at[2], at[3], qos} {
			if r.Size(c) > 1<<20 {
				return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "rosbag2", Msg: "a topic's name or type of more than 1 MiB"}
			}
			var err error
			if v[k], err = r.Text(ctx, c); err != nil {
				return err
			}
		}
		k := key{v[0], v[1], v[2]}
		n, ok := known[k]
		if !ok {
			n = len(s.infos)
			known[k] = n
			info := bag.TopicInfo{Name: v[0], Type: v[1], Encoding: v[2], Latched: latched(v[3]), Metadata: map[string]string{"offered_qos_profiles": v[3]}}
			if d := defs[v[1]]; d.text != "" {
				info.SchemaEncoding, info.SchemaText = d.encoding, d.text
				if _, err := ros2.ParseSchema(d.encoding, v[1], d.text); err != nil {
					if _, ok := ros2.KnownSchema(v[1]); ok {
						info.SchemaEncoding, info.SchemaText = "", ""
						s.found = append(s.found, robocache.Finding{Severity: robocache.SeverityWarning, Code: "schema-unreadable", Where: robocache.Where{"file": s.name, "topic": v[0]},
							Message: "the definition of " + v[1] + " in the file is not readable, the common type of that name is taken: " + err.Error()})
					}
				}
			}
			s.infos = append(s.infos, info)
			s.topics = append(s.topics, db3Topic{})
		}
		numbers[id] = n
		return nil
	})
}

// index reads the time and place of every message.
func (s *db3) index(ctx context.Context, numbers map[int64]int) error {
	t, at, err := s.need("messages", "topic_id", "timestamp", "data")
	if err != nil {
		return err
	}
	s.table, s.at = t, [3]int{at[0], at[1], at[2]}
	lost, last := int64(0), -1
	var lastID int64
	err = s.db.Scan(ctx, t, func(r *sqlite.Row) error {
		id, ok := r.Int(at[0])
		timestamp, ok2 := r.Int(at[1])
		if last < 0 || id != lastID {
			n, known := numbers[id]
			if !known {
				n = -1
			}
			last, lastID = n, id
		}
		if !ok || !ok2 || last < 0 {
			lost++
			return nil
		}
		tp := &s.topics[last]
		tp.log = append(tp.log, timestamp)
		tp.place = append(tp.place, r.Place)
		s.bytes += r.Size(at[2])
		return nil
	})
	if err != nil && (errors.Is(err, robocache.ErrMalformed) && ctx.Err() == nil) && s.rows() > 0 {
		// What the tree gave before the damage is whole: a cut file keeps its first part.
		s.found = append(s.found, robocache.Finding{Severity: robocache.SeverityError, Code: "damaged", Where: robocache.Where{"file": s.name}, Count: int64(s.rows()),
			Message: "the file is damaged: the messages before the damage are read: " + err.Error(), Hint: "fetch the file again, or use sqlite3 .recover"})
		err = nil
	}
	if err != nil {
		return err
	}
	if lost > 0 {
		s.found = append(s.found, robocache.Finding{Severity: robocache.SeverityError, Code: "lost-messages", Where: robocache.Where{"file": s.name}, Count: lost, Message: "messages of topics that the file does not list, or without a time"})
	}
	for k := range s.topics {
		tp := &s.topics[k]
		s.infos[k].Messages = int64(len(tp.log))
		if !slices.IsSorted(tp.log) {
			sort.Stable(tp)
		}
	}
	return nil
}

func (s *db3) rows() int {
	n := 0
	for k := range s.topics {
		n += len(s.topics[k].log)
	}
	return n
}

func (t *db3Topic) Len() int           { return len(t.log) }
func (t *db3Topic) Less(i, j int) bool { return t.log[i] < t.log[j] }
func (t *db3Topic) Swap(i, j int) {
	t.log[i], t.log[j] = t.log[j], t.log[i]
	t.place[i], t.place[j] = t.place[j], t.place[i]
}

func (s *db3) Topics() []bag.TopicInfo { return s.infos }

func (s *db3) Index(_ context.Context, topic int) (*bag.Index, error) {
	return &bag.Index{Log: s.topics[topic].log}, nil
}

func (s *db3) Bytes() int64 { return s.bytes }
func (s *db3) Held() int64  { return 16 * int64(s.rows()) }

func (s *db3) Findings() []robocache.Finding { return s.found }
func (s *db3) Close() error                  { return s.file.Close() }

func (s *db3) reader() *sqlite.Reader {
	if r, ok := s.readers.Get().(*sqlite.Reader); ok {
		return r
	}
	return s.db.Reader(s.table)
}

func (s *db3) Messages(ctx context.Context, topic, from, to int, fn func(i int, m *bag.Message) error) (err error) {
	defer guard.File("rosbag2 read", s.name, &err)
	r := s.reader()
	defer s.readers.Put(r)
	var m bag.Message
	for i := from; i < to; i++ {
		if err := s.one(ctx, r, topic, i, &m, fn); err != nil {
			return err
		}
	}
	return nil
}

func (s *db3) one(ctx context.Context, r *sqlite.Reader, topic, i int, m *bag.Message, fn func(i int, m *bag.Message) error) error {
	tp := &s.topics[topic]
	row, err := r.Row(ctx, tp.place[i])
	if err == nil {
		m.Data, err = row.Bytes(ctx, s.at[2])
	}
	if err != nil {
		return robocache.At(err, robocache.Where{"file": s.name, "topic": s.infos[topic].Name, "index": i})
	}
	m.Log, m.Publish = tp.log[i], tp.log[i]
	return fn(i, m)
}

// Scan reads the messages of these topics in the order of their pages.
func (s *db3) Scan(ctx context.Context, topics []int, fn func(topic, i int, m *bag.Message) error) (err error) {
	defer guard.File("rosbag2 scan", s.name, &err)
	type ref struct{ topic, i int32 }
	var all []ref
	for _, t := range topics {
		for i := range s.topics[t].log {
			all = append(all, ref{int32(t), int32(i)})
		}
	}
	slices.SortFunc(all, func(a, b ref) int {
		p, q := s.topics[a.topic].place[a.i], s.topics[b.topic].place[b.i]
		if p.Page != q.Page {
			return int(int64(p.Page) - int64(q.Page))
		}
		return int(p.Cell) - int(q.Cell)
	})
	r := s.reader()
	defer s.readers.Put(r)
	var m bag.Message
	for _, x := range all {
		err := s.one(ctx, r, int(x.topic), int(x.i), &m, func(i int, m *bag.Message) error { return fn(int(x.topic), i, m) })
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
