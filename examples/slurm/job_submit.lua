-- job_submit.lua: ask schedmate's service for an estimate while a job is submitted. Optional: the
-- agent finds every job in the queue by itself; this only puts the estimate there some seconds
-- earlier. It runs under the controller's locks, so it gives up after 50 ms, whatever happens, and
-- the job is accepted as without it. Needs lua-socket for the Lua that Slurm was built with.
--
--   slurm.conf: JobSubmitPlugins=lua      (this file lies beside slurm.conf)
--   schedmate serve --socket /run/schedmate/serve.sock --socket-mode 0660
--
-- The socket belongs to the account of the service. The controller, which runs this, is SlurmUser:
-- make SlurmUser a member of the service's group (`usermod -a -G schedmate slurm`, then restart
-- slurmctld), and let the group enter the folder (chmod 0750 /run/schedmate).
--
-- Work that the service has read before is answered at once; new work is read after the submission,
-- for the next one. After three submissions without an answer in time it asks nobody for a minute.

local SOCKET = "/run/schedmate/serve.sock"
local DEADLINE_S = 0.05 -- for everything; never more: submissions wait one behind the other
local LONGEST = 65536 -- characters of a script; a longer one is left to the agent

local PATIENCE = 3 -- submissions in a row without an answer in time, after which it pauses
local PAUSE_S = 60

local missed, quiet_until = 0, 0 -- kept while the controller keeps this file loaded

local function json(text)
   return '"' .. tostring(text):gsub('[%c"\\\127]', function(c)
      return string.format("\\u%04x", c:byte())
   end) .. '"'
end

local function shell(text)
   return "'" .. tostring(text):gsub("'", "'\\''") .. "'"
end

local function request(job_desc)
   local script = job_desc.script
   if not script or #script > LONGEST or not job_desc.work_dir then return nil end
   local command = "bash -c " .. shell(script) .. " " .. shell(job_desc.name or "sbatch")
   -- the first argument is the script itself
   for at = 1, (job_desc.argc or 1) - 1 do
      local argument = job_desc.argv and job_desc.argv[at]
      if argument then command = command .. " " .. shell(argument) end
   end
   local body = '{"deadline_s": ' .. DEADLINE_S .. ', "job": {"repo": ' .. json(job_desc.work_dir)
      .. ', "command": ' .. json(command) .. ', "name": ' .. json(job_desc.name or "job") .. "}}"
   return "POST /v1/advise HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
      .. "Content-Type: application/json\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
end

local function ask(job_desc)
   if os.time() < quiet_until then return nil end
   local text = request(job_desc)
   if not text then return nil end
   local unix = require("socket.unix")
   local ends = require("socket").gettime() + DEADLINE_S
   local connection = assert(unix())
   local function left()
      return math.max(0.001, ends - require("socket").gettime())
   end
   connection:settimeout(left(), "t")
   local answer
   if connection:connect(SOCKET) then
      connection:settimeout(left(), "t")
      if connection:send(text) then
         connection:settimeout(left(), "t")
         answer = connection:receive("*a")
      end
   end
   connection:close()
   missed = answer and 0 or missed + 1
   if missed >= PATIENCE then
      missed, quiet_until = 0, os.time() + PAUSE_S
      slurm.log_info("schedmate: no answer in time to %d submissions, asking none for %d s",
         PATIENCE, PAUSE_S)
   end
   if not answer or not answer:match("^HTTP/1%.[01] 200") then return nil end
   if answer:match('"duration_s"%s*:%s*null') then return nil end
   return answer:match('"summary"%s*:%s*"([^"\\%c]*)"')
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   local fine, said = pcall(ask, job_desc)
   if fine and said then
      job_desc.admin_comment = "schedmate: " .. said:sub(1, 200)
   elseif not fine then
      slurm.log_info("schedmate: %s", tostring(said))
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   return slurm.SUCCESS
end

return slurm.SUCCESS
