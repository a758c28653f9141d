-- Asks for FILES in turn and compares every body with the file on disk. FILES and CONNECTIONS are
-- set in front of this text; `done`, which prints wrk's own counts, stands there too.
--
-- wrk does not say which request a reply belongs to. On one connection it is the last. On more, a
-- body's length says which file it should be, and no file may be answered more often than asked
-- for.

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

function init()
  checked, mismatches, bad_status, first_wrong = 0, 0, 0, ''
  requests, bodies, by_length, asked, answered = {}, {}, {}, {}, {}
  turn, probed = 0, false
  for at, file in ipairs(FILES) do
    local handle = assert(io.open(file.path, 'rb'))
    bodies[at] = handle:read('*a')
    handle:close()
    by_length[#bodies[at]] = at
    requests[at] = wrk.format('GET', file.target)
    asked[at], answered[at] = 0, 0
  end
end

function request()
  if not probed then
    -- The first call is wrk's question how many requests the text holds; it is not sent.
    probed = true
    return requests[1]
  end
  turn = turn % #requests + 1
  asked[turn] = asked[turn] + 1
  return requests[turn]
end

local function wrong(what)
  mismatches = mismatches + 1
  if first_wrong == '' then
    first_wrong = what
  end
end

function response(status, headers, body)
  checked = checked + 1
  if status ~= 200 then
    bad_status = bad_status + 1
    return
  end
  local at = by_length[#body]
  if CONNECTIONS == 1 then
    at = turn
  end
  if at == nil then
    wrong('a body of ' .. #body .. ' bytes')
  elseif body ~= bodies[at] then
    wrong(FILES[at].target .. ' is not the file, with ' .. #body .. ' bytes')
  elseif answered[at] == asked[at] then
    wrong(FILES[at].target .. ' was not asked for')
  else
    answered[at] = answered[at] + 1
  end
end

local print_counts = done

function done(summary, latency, counts)
  print_counts(summary, latency, counts)
  for _, thread in ipairs(threads) do
    io.write(string.format(
      'checked {"checked":%d,"mismatches":%d,"bad_status":%d,"first_wrong":"%s"}\n',
      thread:get('checked'), thread:get('mismatches'), thread:get('bad_status'),
      thread:get('first_wrong')))
  end
end
