package rosbag2

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/ncruces/go-sqlite3"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/internal/sqlite"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// db3 is one SQLite file as a recording.
type db3 struct {
	file   robocache.Ranged
	name   string
	db     *sqlite.DB
	list   bag.Topics
	topics []db3Topic
	bytes  int64
	found  []robocache.Finding
}

// db3Topic holds the messages of a topic in the order of log times.
type db3Topic struct {
	ids []int64 // ids in the table topics
	log []int64
	row []int64 // row ids
}

var _ bag.Storage = (*db3)(nil)

// openDB3 reads the topics and the times of all messages. wal is the write-ahead log of the file;
// it may be empty, and nil means that there is none. Closing the storage closes the file.
func openDB3(
	ctx context.Context,
	file robocache.Ranged,
	name string,
	wal []byte,
	cache *blockCache,
) (s *db3, err error) {
	defer crash.RecoverFile("rosbag2 open", name, &err)
	where := robocache.Where{"file": name}
	file = readAhead(file, name, cache)
	db, err := sqlite.Open(ctx, file, wal)
	if err := robocache.At(err, where); err != nil {
		return s, err
	}
	s = &db3{file: file, name: name, db: db}
	if wal != nil {
		s.found = append(s.found, robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "not-closed",
			Where:    where,
			Count:    int64(db.LogPages()),
			Message: "the file has a write-ahead log: the recorder did not close it. " +
				strconv.Itoa(db.LogPages()) + " pages were read from the log",
			Hint: "open and close the file once with sqlite3",
		})
	}
	err = db.Use(ctx, func(c *sqlite.Conn) error {
		return func() error {
			topics, err := s.readTopics(c)
			if err != nil {
				return err
			}
			return s.readIndex(ctx, c, topics)
		}()
	})
	if err != nil {
		db.Close()
		return nil, robocache.At(err, where)
	}
	return s, nil
}

const maxTopics = 65535

// Remote reports whether reading messages waits for a network.
func (s *db3) Remote() bool { return store.Remote(s.file) }

// requireColumns checks that a table exists and has some columns. It returns all of its columns.
func requireColumns(c *sqlite.Conn, table string, columns ...string) ([]string, error) {
	have, err := c.Columns(table)
	if err != nil {
		return nil, err
	}
	if len(have) == 0 {
		return nil, robocache.Malformed("rosbag2", nil, "the database has no table %s", table).
			WithHint("a rosbag2 recording has the tables topics and messages")
	}
	for _, name := range columns {
		if !hasColumn(have, name) {
			return nil, robocache.Malformed(
				"rosbag2",
				nil,
				"the table %s has no column %s",
				table,
				name,
			)
		}
	}
	return have, nil
}

func hasColumn(columns []string, name string) bool {
	return slices.ContainsFunc(columns, func(c string) bool { return strings.EqualFold(c, name) })
}

// readTopics reads the topics and their definitions. It returns a map from the number in the file
// to the position in infos.
func (s *db3) readTopics(c *sqlite.Conn) (map[int64]int, error) {
	type definition struct{ encoding, text string }
	defs := map[string]definition{}
	if func() error {
		if _, err := requireColumns(c, "message_definitions", "topic_type", "encoding",
			"encoded_message_definition"); err != nil {
			return err
		}
		return nil
	}() == nil {
		if err := c.Query(
			"SELECT topic_type, encoding, encoded_message_definition FROM message_definitions",
			func(r *sqlite.Row) error {
				for k := range 3 {
					if len(r.ColumnRawText(k)) > 4<<20 {
						return nil // longer than any definition
					}
				}
				if len(defs) < maxTopics {
					defs[r.ColumnText(0)] = definition{r.ColumnText(1), r.ColumnText(2)}
				}
				return nil
			},
		); err != nil {
			return nil, err
		}
	}
	columns, err := requireColumns(c, "topics", "id", "name", "type", "serialization_format")
	if err != nil {
		return nil, err
	}
	qos := "''"
	if hasColumn(columns, "offered_qos_profiles") {
		qos = "offered_qos_profiles"
	}
	numbers := map[int64]int{}
	if err := c.Query(
		"SELECT id, name, type, serialization_format, "+qos+" FROM topics",
		func(r *sqlite.Row) error {
			if r.ColumnType(0) != sqlite3.INTEGER || len(numbers) >= maxTopics {
				return robocache.ResourceLimit(
					"rosbag2",
					nil,
					"topics without a number, or more than %d",
					maxTopics,
				)
			}
			id := r.ColumnInt64(0)
			var v [4]string
			for k := range v {
				if len(r.ColumnRawText(k+1)) > 1<<20 {
					return robocache.ResourceLimit(
						"rosbag2",
						nil,
						"a topic's name or type of more than 1 MiB",
					)
				}
				v[k] = r.ColumnText(k + 1)
			}
			n := s.list.Add(
				bag.TopicInfo{
					Name:     v[0],
					Type:     v[1],
					Encoding: v[2],
					Latched:  bag.Latched(v[3]),
					Metadata: map[string]string{"offered_qos_profiles": v[3]},
				},
			)
			if n == len(s.topics) {
				s.topics = append(s.topics, db3Topic{})
				if d := defs[v[1]]; d.text != "" {
					s.setSchema(&s.list.Infos[n], d.encoding, d.text)
				}
			}
			numbers[id] = n
			s.topics[n].ids = append(s.topics[n].ids, id)
			return nil
		},
	); err != nil {
		return nil, err
	}
	return numbers, nil
}

// setSchema sets the definition of a topic in the file. If it cannot be parsed and the type is a
// common one, the common definition is used instead.
func (s *db3) setSchema(info *bag.TopicInfo, encoding, text string) {
	_, err := ros2.ParseSchema(encoding, info.Type, text)
	if _, known := ros2.KnownSchema(info.Type); err == nil || !known {
		info.SchemaEncoding, info.SchemaText = encoding, text
		return
	}
	s.found = append(s.found, robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "schema-unreadable",
		Where:    robocache.Where{"file": s.name, "topic": info.Name},
		Message: "the definition of " + info.Type + " in the file is not readable, the " +
			"common type of that name is taken: " + err.Error(),
		Hint: "If values look wrong, record the topic again with its complete definition",
	})
}

// readIndex reads the time and row id of every message.
func (s *db3) readIndex(ctx context.Context, c *sqlite.Conn, numbers map[int64]int) error {
	columns, err := requireColumns(c, "messages", "topic_id", "timestamp", "data")
	if err != nil {
		return err
	}
	if hasColumn(columns, "rowid") {
		return robocache.Malformed(
			"rosbag2",
			nil,
			"the table messages has a column of its own named rowid",
		)
	}
	lost, high, largest, first := int64(0), int64(0), int64(0), true
	err = c.Query(
		"SELECT rowid, topic_id, timestamp, octet_length(data) FROM messages NOT INDEXED",
		func(r *sqlite.Row) error {
			row := r.ColumnInt64(0)
			// A page that occurs several times in the tree would otherwise be read as often.
			if !first && row <= high {
				return robocache.Malformed(
					"rosbag2",
					nil,
					"the rows of the table messages are not in their order",
				)
			}
			high, first = row, false
			n, known := numbers[r.ColumnInt64(1)]
			if !known || r.ColumnType(1) != sqlite3.INTEGER || r.ColumnType(2) != sqlite3.INTEGER {
				lost++
				return nil
			}
			tp := &s.topics[n]
			tp.log, tp.row = append(tp.log, r.ColumnInt64(2)), append(tp.row, row)
			s.bytes += r.ColumnInt64(3)
			largest = max(largest, r.ColumnInt64(3))
			return nil
		},
	)
	if errors.Is(err, robocache.ErrMalformed) && ctx.Err() == nil && s.rowCount() > 0 {
		// Messages before the damage are intact, so a truncated file keeps its first part.
		s.found = append(s.found, robocache.Finding{
			Severity: robocache.SeverityError,
			Code:     "damaged",
			Where:    robocache.Where{"file": s.name},
			Count:    int64(s.rowCount()),
			Message: "the file is damaged: the messages before the damage are read: " +
				err.Error(),
			Hint: "fetch the file again, or use sqlite3 .recover",
		})
		err = nil
	}
	if err != nil {
		return err
	}
	s.db.Expect(largest)
	if lost > 0 {
		s.found = append(
			s.found,
			robocache.Finding{
				Severity: robocache.SeverityError,
				Code:     "lost-messages",
				Where:    robocache.Where{"file": s.name},
				Count:    lost,
				Message:  "messages of topics that the file does not list, or without a time",
			},
		)
	}
	for k := range s.topics {
		tp := &s.topics[k]
		s.list.Infos[k].Messages = int64(len(tp.log))
		if !slices.IsSorted(tp.log) {
			sort.Stable(tp)
		}
	}
	return nil
}

func (s *db3) rowCount() int {
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
	t.row[i], t.row[j] = t.row[j], t.row[i]
}

func (s *db3) Topics() []bag.TopicInfo { return s.list.Infos }

func (s *db3) Index(_ context.Context, topic int) (*bag.Index, error) {
	return &bag.Index{Log: s.topics[topic].log}, nil
}

func (s *db3) Bytes() int64 { return s.bytes }
func (s *db3) Held() int64  { return 16 * int64(s.rowCount()) }

func (s *db3) Findings() []robocache.Finding                       { return s.found }
func (s *db3) Notes(context.Context) (map[string]string, error)    { return nil, nil }
func (s *db3) Verify(context.Context) ([]robocache.Finding, error) { return nil, nil }

func (s *db3) Close() error { return errors.Join(s.db.Close(), s.file.Close()) }

// messageRef identifies a requested message.
type messageRef struct {
	row      int64
	topic, i int
}

func (s *db3) messageRefs(topic, from, to int) []messageRef {
	out := make([]messageRef, 0, max(0, to-from))
	for i := from; i < to; i++ {
		out = append(out, messageRef{s.topics[topic].row[i], topic, i})
	}
	return out
}

// Messages calls fn for messages of a topic in the order of their times.
func (s *db3) Messages(
	ctx context.Context,
	topic, from, to int,
	fn func(i int, m *bag.Message) error,
) error {
	failed := map[int]error{}
	err := s.readRefs(
		ctx,
		s.messageRefs(topic, from, to),
		failed,
		func(_, i int, m *bag.Message) error { return fn(i, m) },
	)
	return cmp.Or(err, failed[topic])
}

// Walk calls fn for the messages of the topics in file order. A topic that was not recorded in the
// order of its times is read separately.
func (s *db3) Walk(
	ctx context.Context,
	topics []int,
	fn func(topic, i int, m *bag.Message) error,
) (failed map[int]error, err error) {
	failed = map[int]error{}
	var all []messageRef
	for _, t := range topics {
		refs := s.messageRefs(t, 0, len(s.topics[t].row))
		if slices.IsSorted(s.topics[t].row) {
			all = append(all, refs...)
		} else if err := s.readRefs(ctx, refs, failed, fn); err != nil {
			return failed, err
		}
	}
	slices.SortFunc(all, func(a, b messageRef) int { return cmp.Compare(a.row, b.row) })
	return failed, s.readRefs(ctx, all, failed, fn)
}

// mostBetween is the maximum number of rows of other topics that a query skips.
const mostBetween = 32

// errNoMore ends a query in which all topics failed.
var errNoMore = errors.New("no topic is left")

// readRefs reads messages in the order of refs, with one query for each run of nearby rows. An
// error of a message ends its topic and is stored in failed.
func (s *db3) readRefs(
	ctx context.Context,
	refs []messageRef,
	failed map[int]error,
	fn func(topic, i int, m *bag.Message) error,
) (err error) {
	defer crash.RecoverFile("rosbag2 read", s.name, &err)
	left := map[int]bool{} // topics that have not failed
	var list []string
	for _, r := range refs {
		if !left[r.topic] {
			left[r.topic] = true
			for _, id := range s.topics[r.topic].ids {
				list = append(list, strconv.FormatInt(id, 10))
			}
		}
	}
	slices.Sort(list)
	fail := func(r messageRef, err error) {
		failed[r.topic] = robocache.At(
			err,
			robocache.Where{"file": s.name, "topic": s.list.Infos[r.topic].Name, "index": r.i},
		)
		delete(left, r.topic)
	}
	sql := "SELECT rowid, data FROM messages NOT INDEXED WHERE rowid BETWEEN ? AND ? AND " +
		"topic_id IN (" + strings.Join(list, ",") + ") ORDER BY rowid"
	lost := robocache.Malformed("rosbag2", nil, "the row of a message is not found again")
	var m bag.Message
	for len(refs) > 0 && len(left) > 0 {
		before := len(refs)
		err := s.db.Use(ctx, func(c *sqlite.Conn) error {
			for len(refs) > 0 && len(left) > 0 {
				n := 1
				for n < len(refs) && refs[n].row > refs[n-1].row &&
					refs[n].row-refs[n-1].row <= mostBetween {
					n++
				}
				run := refs[:n]
				first := run[0].row
				err := c.Query(sql, func(r *sqlite.Row) error {
					row := r.ColumnInt64(0)
					for len(run) > 0 && run[0].row <= row {
						x := run[0]
						run = run[1:]
						switch {
						case !left[x.topic]:
						case x.row < row:
							fail(x, lost)
						default:
							t := s.topics[x.topic].log[x.i]
							m = bag.Message{Log: t, Publish: t, Data: r.ColumnRawBlob(1)}
							if err := fn(x.topic, x.i, &m); err != nil {
								fail(x, err)
							}
						}
					}
					if len(left) == 0 {
						return errNoMore
					}
					return nil
				}, first, refs[n-1].row)
				for len(run) > 0 && (err == nil || !left[run[0].topic]) {
					if left[run[0].topic] {
						fail(run[0], lost)
					}
					run = run[1:]
				}
				// Otherwise the failed row may be any of them.
				if err != nil && len(run) > 0 && run[0].row == first {
					fail(run[0], err)
					run = run[1:]
				}
				refs = refs[n-len(run):]
				if err != nil {
					return err
				}
			}
			return nil
		})
		if ctx.Err() != nil || err != nil && len(refs) == before {
			return cmp.Or(err, ctx.Err())
		}
	}
	return nil
}
