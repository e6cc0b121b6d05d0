-- +goose Up
-- Events of the API. An event is stored before it is acknowledged, so a crash loses none.

CREATE TABLE shop.events (
    id          text        COLLATE "C" PRIMARY KEY, -- the API may deliver an event several times
    order_id    text        NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    handled_at  timestamptz
);

CREATE INDEX events_unhandled ON shop.events (received_at) WHERE handled_at IS NULL;
CREATE INDEX events_handled ON shop.events (handled_at); -- old ones are deleted

-- +goose Down
DROP TABLE shop.events;
